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
}

/// The fields of both requests by their short names, those that decide about storing the message.
#[derive(Deserialize)]
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

impl<'a> Head<'a> {
    /// Returns the header; `None` if it is not one of a request with these fields.
    pub fn of(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
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
