//! Reads the messages in the answer to a pull: records, as drawn in `rocket_remoting.wire.record`.

use std::net::Ipv4Addr;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::panics::caught;
use crate::properties::each_property;
use crate::record::{HOST_FLAGS, MAGIC_V1};

/// Bytes of a record with two IPv4 hosts before its body.
const BEFORE_BODY: usize = 88;
const BORN_HOST: usize = 48;
const STORE_HOST: usize = 64;
/// Names of properties that are remembered for the next messages.
const MOST_NAMES: usize = 32;

/// A record of version 1 with two IPv4 hosts.
struct Record<'a> {
    head: &'a [u8; BEFORE_BODY],
    body: &'a [u8],
    topic: &'a str,
    properties: &'a str,
    size: usize,
}

/// Python's objects for texts that recur in the messages of a pull.
#[derive(Default)]
struct Texts<'a, 'py> {
    topic: Option<(&'a str, Bound<'py, PyString>)>,
    born_host: Option<(&'a [u8], Bound<'py, PyTuple>)>,
    store_host: Option<(&'a [u8], Bound<'py, PyTuple>)>,
    properties: Vec<Property<'a, 'py>>,
}

/// A name, and the last value that it had.
struct Property<'a, 'py> {
    name: (&'a str, Bound<'py, PyString>),
    value: (&'a str, Bound<'py, PyString>),
}

/// Returns the fields of each record from a position on, up to the first that is unusual, and where that one begins.
///
/// Usual are records of version 1 with two IPv4 hosts, whose properties have the usual form.
#[pyfunction]
#[pyo3(signature = (data, start, /))]
pub fn read_messages<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyBytes>,
    start: usize,
) -> PyResult<(Vec<Bound<'py, PyTuple>>, usize)> {
    caught(|| {
        let (bytes, mut position) = (data.as_bytes(), start);
        let (mut texts, mut messages) = (Texts::default(), Vec::new());
        while let Some(record) = Record::at(bytes, position) {
            let Some(fields) = record.fields(py, &mut texts)? else { break };
            messages.push(fields);
            position += record.size;
        }
        Ok((messages, position))
    })
}

impl<'a> Record<'a> {
    /// Returns the record at a position; `None` if there is none, or another one.
    fn at(data: &'a [u8], position: usize) -> Option<Self> {
        let head: &[u8; BEFORE_BODY] = data.get(position..)?.first_chunk()?;
        if head[4..8] != MAGIC_V1.to_be_bytes() || int(head, 36) & HOST_FLAGS != 0 {
            return None;
        }
        let size = usize::try_from(int(head, 0)).ok()?;
        let record = data.get(position..position.checked_add(size)?)?;
        let body_end = BEFORE_BODY + usize::try_from(int(head, BEFORE_BODY - 4)).ok()?;
        let topic_end = body_end + 1 + usize::from(*record.get(body_end)?);
        let length = record.get(topic_end..topic_end + 2)?;
        let properties_length = usize::try_from(i16::from_be_bytes([length[0], length[1]])).ok()?;
        if topic_end + 2 + properties_length != size {
            return None;
        }
        Some(Self {
            head,
            body: record.get(BEFORE_BODY..body_end)?,
            topic: std::str::from_utf8(record.get(body_end + 1..topic_end)?).ok()?,
            properties: std::str::from_utf8(&record[topic_end + 2..]).ok()?,
            size,
        })
    }

    /// Returns the fields of the message, in the order of the record; `None` if its properties are unusual.
    fn fields<'py>(&self, py: Python<'py>, texts: &mut Texts<'a, 'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(properties) = self.properties(py, texts)? else { return Ok(None) };
        let head = self.head;
        let int = |position| Ok::<_, PyErr>(int(head, position).into_pyobject(py)?.into_any());
        let long = |position| Ok::<_, PyErr>(long(head, position).into_pyobject(py)?.into_any());
        let born_host = host(py, &mut texts.born_host, &head[BORN_HOST..BORN_HOST + 8])?;
        let store_host = host(py, &mut texts.store_host, &head[STORE_HOST..STORE_HOST + 8])?;
        let fields = [
            int(0)?,   // total size
            int(8)?,   // checksum
            int(12)?,  // queue id
            int(16)?,  // flag
            long(20)?, // queue offset
            long(28)?, // commit log offset
            int(36)?,  // system flag
            long(40)?, // born timestamp
            born_host.into_any(),
            long(56)?, // store timestamp
            store_host.into_any(),
            int(72)?,  // reconsume times
            long(76)?, // prepared transaction offset
            PyBytes::new(py, self.body).into_any(),
            remembered(py, &mut texts.topic, self.topic).into_any(),
            properties.into_any(),
        ];
        PyTuple::new(py, fields).map(Some)
    }

    fn properties<'py>(&self, py: Python<'py>, texts: &mut Texts<'a, 'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let properties = PyDict::new(py);
        let mut added = Ok(());
        let is_usual = each_property(self.properties, |name, value| {
            let (name, value) = texts.property(py, name, value);
            added = properties.set_item(name, value);
            added.is_ok().then_some(())
        });
        added?;
        Ok(is_usual.map(|()| properties))
    }
}

impl<'a, 'py> Texts<'a, 'py> {
    /// Returns the objects for the name and the value of a property.
    fn property(
        &mut self,
        py: Python<'py>,
        name: &'a str,
        value: &'a str,
    ) -> (Bound<'py, PyString>, Bound<'py, PyString>) {
        if let Some(known) = self.properties.iter_mut().find(|known| known.name.0 == name) {
            if known.value.0 != value {
                known.value = (value, PyString::new(py, value));
            }
            return (known.name.1.clone(), known.value.1.clone());
        }
        let found = (PyString::new(py, name), PyString::new(py, value));
        if self.properties.len() < MOST_NAMES {
            let (name, value) = ((name, found.0.clone()), (value, found.1.clone()));
            self.properties.push(Property { name, value });
        }
        found
    }
}

/// Returns the object for a text, which is remembered for the next one.
fn remembered<'a, 'py>(
    py: Python<'py>,
    last: &mut Option<(&'a str, Bound<'py, PyString>)>,
    text: &'a str,
) -> Bound<'py, PyString> {
    if let Some((_, known)) = last.as_ref().filter(|(other, _)| *other == text) {
        return known.clone();
    }
    let found = PyString::new(py, text);
    *last = Some((text, found.clone()));
    found
}

/// Returns the tuple of an IPv4 address and a port, which is remembered for the next one.
fn host<'a, 'py>(
    py: Python<'py>,
    last: &mut Option<(&'a [u8], Bound<'py, PyTuple>)>,
    packed: &'a [u8],
) -> PyResult<Bound<'py, PyTuple>> {
    if let Some((_, known)) = last.as_ref().filter(|(other, _)| *other == packed) {
        return Ok(known.clone());
    }
    let address = Ipv4Addr::new(packed[0], packed[1], packed[2], packed[3]);
    let port = i32::from_be_bytes([packed[4], packed[5], packed[6], packed[7]]);
    let found = (address.to_string(), port).into_pyobject(py)?;
    *last = Some((packed, found.clone()));
    Ok(found)
}

fn int(head: &[u8; BEFORE_BODY], position: usize) -> i32 {
    let field = &head[position..position + 4];
    i32::from_be_bytes([field[0], field[1], field[2], field[3]])
}

fn long(head: &[u8; BEFORE_BODY], position: usize) -> i64 {
    let (high, low) = (int(head, position), int(head, position + 4));
    i64::from(high) << 32 | i64::from(low.cast_unsigned())
}
