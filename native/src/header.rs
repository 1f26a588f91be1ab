//! The header of a send request, in JSON.

use std::borrow::Cow;

use serde::Deserialize;

/// The header of a request; an unknown field is ignored, and a field that is there twice is an error.
#[derive(Deserialize)]
pub struct Head<'a> {
    pub code: i32,
    #[serde(default)]
    pub flag: i32,
    #[serde(default)]
    pub opaque: i32,
    #[serde(default)]
    #[allow(dead_code)] // read for its type
    version: i32,
    #[serde(borrow, default)]
    #[allow(dead_code)]
    language: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    #[allow(dead_code)]
    remark: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "extFields")]
    pub fields: Fields<'a>,
    /// Who has signed the request; only if it has no other fields than these and `fields`.
    #[serde(skip)]
    pub keys: Option<Keys<'a>>,
}

/// The fields that a sender with an account adds to a request.
pub struct Keys<'a> {
    /// The field with the code and the layout of the request that is signed, and the names and lengths of the other
    /// fields but the signature, in JSON.
    pub scope: Option<(Cow<'a, str>, Vec<u8>)>,
    pub access_key: Cow<'a, str>,
    pub security_token: Option<Cow<'a, str>>,
    pub signature: Cow<'a, str>,
}

/// The fields of both requests by their short names, those that decide about storing the message.
#[derive(Default, Deserialize)]
pub struct Fields<'a> {
    #[serde(borrow)]
    pub a: Cow<'a, str>,
    #[serde(borrow)]
    pub b: Cow<'a, str>,
    #[serde(borrow)]
    pub c: Cow<'a, str>,
    #[serde(borrow)]
    pub d: Cow<'a, str>,
    #[serde(borrow)]
    pub e: Cow<'a, str>,
    #[serde(borrow)]
    pub f: Cow<'a, str>,
    #[serde(borrow)]
    pub g: Cow<'a, str>,
    #[serde(borrow)]
    pub h: Cow<'a, str>,
    #[serde(borrow, default)]
    pub i: Cow<'a, str>,
    #[serde(borrow, default)]
    pub j: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub k: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub l: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub m: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub n: Option<Cow<'a, str>>,
}

/// Bits of the fields of `Head` that have been read.
const FLAG: u8 = 1;
const OPAQUE: u8 = 2;
const VERSION: u8 = 4;
const LANGUAGE: u8 = 8;
const FIELDS: u8 = 16;

/// The number of fields of `Fields`, whose names are the letters from `a` on, and of `Keys` behind them.
const FIELD_COUNT: usize = 18;
const ACCESS_KEY: usize = 14;
const SECURITY_TOKEN: usize = 15;
const SIGNATURE: usize = 16;
const SCOPE: usize = 17;

impl<'a> Head<'a> {
    /// Returns the header; `None` if it is not one of a request with these fields.
    pub fn of(text: &'a str) -> Option<Self> {
        // The general parser takes four times the instructions.
        Scan { text, position: 0 }.head().or_else(|| serde_json::from_str(text).ok())
    }
}

/// Reads a header as nearly all clients write it: an object without spaces, whose values are integers and texts, and
/// one object of texts. It gives up whatever else there is, so it need not know what is wrong JSON.
struct Scan<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Scan<'a> {
    fn head(mut self) -> Option<Head<'a>> {
        self.skip(b"{\"code\":")?;
        let mut head = Head {
            code: self.int()?,
            flag: 0,
            opaque: 0,
            version: 0,
            language: None,
            remark: None,
            fields: Fields::default(),
            keys: None,
        };
        let mut seen = 0;
        while self.next()? == b',' {
            self.skip(b"\"")?;
            let bit = match self.plain()? {
                "flag" => {
                    head.flag = self.int_value()?;
                    FLAG
                }
                "opaque" => {
                    head.opaque = self.int_value()?;
                    OPAQUE
                }
                "version" => {
                    head.version = self.int_value()?;
                    VERSION
                }
                "language" => {
                    head.language = Some(self.text_value()?);
                    LANGUAGE
                }
                "extFields" => {
                    (head.fields, head.keys) = self.fields()?;
                    FIELDS
                }
                "serializeTypeCurrentRPC" => {
                    self.text_value()?;
                    0
                }
                _ => return None,
            };
            if seen & bit != 0 {
                return None;
            }
            seen |= bit;
        }
        // The loop has ended at a byte that is not a comma.
        let is_whole = self.text.as_bytes()[self.position - 1] == b'}' && self.position == self.text.len();
        (is_whole && seen & FIELDS != 0).then_some(head)
    }

    #[allow(clippy::many_single_char_names)] // the fields have these names
    fn fields(&mut self) -> Option<(Fields<'a>, Option<Keys<'a>>)> {
        self.skip(b":{")?;
        let mut found = [const { None }; FIELD_COUNT];
        loop {
            self.skip(b"\"")?;
            let place = match self.next()? {
                letter @ b'a'..=b'n' => usize::from(letter - b'a'),
                b'!' => self.skip(b"Scope").map(|()| SCOPE)?,
                b'A' => self.skip(b"ccessKey").map(|()| ACCESS_KEY)?,
                b'S' => match self.skip(b"ignature") {
                    Some(()) => SIGNATURE,
                    None => self.skip(b"ecurityToken").map(|()| SECURITY_TOKEN)?,
                },
                _ => return None,
            };
            self.skip(b"\":\"")?;
            if found[place].replace(self.text()?).is_some() {
                return None;
            }
            match self.next()? {
                b',' => {}
                b'}' => break,
                _ => return None,
            }
        }
        let layout = found[SCOPE].is_some().then(|| layout(&found));
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, access_key, security_token, signature, scope] = found;
        let i = i.unwrap_or_default();
        let fields = Fields { a: a?, b: b?, c: c?, d: d?, e: e?, f: f?, g: g?, h: h?, i, j, k, l, m, n };
        let (scope, signature) = (scope.zip(layout), signature.unwrap_or_default());
        let keys = access_key.map(|access_key| Keys { scope, access_key, security_token, signature });
        Some((fields, keys))
    }

    fn next(&mut self) -> Option<u8> {
        let byte = *self.text.as_bytes().get(self.position)?;
        self.position += 1;
        Some(byte)
    }

    fn skip(&mut self, bytes: &[u8]) -> Option<()> {
        self.text.as_bytes()[self.position..].starts_with(bytes).then(|| self.position += bytes.len())
    }

    fn int_value(&mut self) -> Option<i32> {
        self.skip(b":")?;
        self.int()
    }

    fn int(&mut self) -> Option<i32> {
        let start = self.position;
        let rest = &self.text.as_bytes()[start..];
        let sign = usize::from(rest.first() == Some(&b'-'));
        let digits = rest[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 || (rest[sign] == b'0' && sign + digits > 1) {
            return None;
        }
        self.position += sign + digits;
        self.text[start..self.position].parse().ok()
    }

    fn text_value(&mut self) -> Option<Cow<'a, str>> {
        self.skip(b":\"")?;
        self.text()
    }

    /// Returns a text without escapes, up to its closing quote.
    fn plain(&mut self) -> Option<&'a str> {
        let start = self.position;
        let length = self.text.as_bytes()[start..].iter().position(|byte| SPECIAL[usize::from(*byte)])?;
        self.position += length;
        (self.next()? == b'"').then(|| &self.text[start..start + length])
    }

    /// Returns a text up to its closing quote.
    fn text(&mut self) -> Option<Cow<'a, str>> {
        let start = self.position;
        if let Some(plain) = self.plain() {
            return Some(Cow::Borrowed(plain));
        }
        self.position = start;
        let mut found = String::with_capacity(self.text.len() - start);
        loop {
            let start = self.position;
            let length = self.text.as_bytes()[start..].iter().position(|byte| SPECIAL[usize::from(*byte)])?;
            found.push_str(&self.text[start..start + length]);
            self.position += length;
            match self.next()? {
                b'"' => return Some(Cow::Owned(found)),
                b'\\' => found.push(self.escaped()?),
                _ => return None,
            }
        }
    }

    /// Returns the character of an escape; `None` if it may be one beyond ASCII.
    fn escaped(&mut self) -> Option<char> {
        match self.next()? {
            byte @ (b'"' | b'\\') => Some(char::from(byte)),
            b'u' => {
                self.skip(b"00")?;
                let (high, low) = (self.next()?, self.next()?);
                let value = char::from(high).to_digit(8)? * 16 + char::from(low).to_digit(16)?;
                char::from_u32(value)
            }
            _ => None,
        }
    }
}

/// Returns the names and the lengths in characters of all fields but scope and signature, in JSON.
fn layout(found: &[Option<Cow<str>>; FIELD_COUNT]) -> Vec<u8> {
    const LETTERS: &[u8] = b"abcdefghijklmn";
    let (mut names, mut lengths) = (b"[[".to_vec(), Vec::with_capacity(64));
    let mut add = |name: &[u8], value: &Option<Cow<str>>| {
        if let Some(value) = value {
            names.push(b'"');
            names.extend_from_slice(name);
            names.extend_from_slice(b"\",");
            lengths.extend_from_slice(value.chars().count().to_string().as_bytes());
            lengths.push(b',');
        }
    };
    add(b"AccessKey", &found[ACCESS_KEY]);
    add(b"SecurityToken", &found[SECURITY_TOKEN]);
    for (place, letter) in LETTERS.iter().enumerate() {
        add(&[*letter], &found[place]);
    }
    names.pop();
    lengths.pop();
    [names.as_slice(), b"],[", &lengths, b"]]"].concat()
}

/// For each byte whether it ends a text, or is not itself in it.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut byte = 0;
    while byte < ' ' as usize {
        special[byte] = true;
        byte += 1;
    }
    special[b'"' as usize] = true;
    special[b'\\' as usize] = true;
    special
};

impl Keys<'_> {
    /// Returns the values of all fields but the signature, in the order of their names: what is signed, with the body.
    pub fn content(&self, fields: &Fields) -> Vec<u8> {
        let Fields { a, b, c, d, e, f, g, h, i, j, k, l, m, n } = fields;
        let scope = self.scope.as_ref().map(|(scope, _)| scope);
        let before = [scope, Some(&self.access_key), self.security_token.as_ref()];
        let (always, perhaps) = ([a, b, c, d, e, f, g, h, i].map(Some), [j, k, l, m, n].map(Option::as_ref));
        let mut content = Vec::with_capacity(256);
        for value in before.into_iter().chain(always).chain(perhaps).flatten() {
            content.extend_from_slice(value.as_bytes());
        }
        content
    }
}

impl Fields<'_> {
    /// Returns whether the request says that it carries a batch; `None` if that is unclear.
    pub fn says_batch(&self) -> Option<bool> {
        match self.m.as_deref() {
            None | Some("false") => Some(false),
            Some("true") => Some(true),
            Some(_) => None,
        }
    }

    /// Returns whether the fields that are not stored have usual values.
    pub fn are_plain(&self) -> bool {
        let is_text = |field: &Option<Cow<str>>| field.as_ref().is_none_or(|text| !text.is_empty());
        let is_number = |field: &Option<Cow<str>>| field.as_ref().is_none_or(|text| number::<i32>(text).is_some());
        !self.a.is_empty()
            && !self.c.is_empty()
            && number::<i32>(&self.d).is_some()
            && self.j.as_ref().is_none_or(|times| times == "0")
            && self.k.as_ref().is_none_or(|is_unit| is_unit == "false")
            && is_number(&self.l)
            && is_text(&self.n)
    }
}

/// Returns a number in decimal digits, as Java writes it; `None` for anything else.
pub fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && (!digits.starts_with('0') || text == "0");
    is_plain.then(|| text.parse().ok())?
}
