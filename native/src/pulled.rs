//! Reads the messages in the answer to a pull: records, as drawn in `rocket_remoting.wire.record`.

use std::net::Ipv4Addr;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::panics::caught;
use crate::properties::each_property;
use crate::stored_record::StoredRecord;

/// Names of properties that are remembered for the next messages.
const MOST_NAMES: usize = 32;

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
        while let Some(record) = StoredRecord::at(bytes, position).filter(StoredRecord::is_plain) {
            let Some(fields) = texts.fields(py, &record)? else { break };
            messages.push(fields);
            position += record.size;
        }
        Ok((messages, position))
    })
}

impl<'a, 'py> Texts<'a, 'py> {
    /// Returns the fields of the message, in the order of the record; `None` if its texts are unusual.
    fn fields(&mut self, py: Python<'py>, record: &StoredRecord<'a>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let texts = std::str::from_utf8(record.topic).ok().zip(std::str::from_utf8(record.properties).ok());
        let Some((topic, properties)) = texts else { return Ok(None) };
        let Some(properties) = self.properties(py, properties)? else { return Ok(None) };
        let int = |value: i32| Ok::<_, PyErr>(value.into_pyobject(py)?.into_any());
        let long = |value: i64| Ok::<_, PyErr>(value.into_pyobject(py)?.into_any());
        let fields = [
            record.size.into_pyobject(py)?.into_any(),
            int(record.checksum())?,
            int(record.queue_id())?,
            int(record.flag())?,
            long(record.queue_offset())?,
            long(record.commit_log_offset())?,
            int(record.sys_flag())?,
            long(record.born_timestamp())?,
            host(py, &mut self.born_host, record.born_host)?.into_any(),
            long(record.store_timestamp)?,
            host(py, &mut self.store_host, record.store_host)?.into_any(),
            int(record.reconsume_times)?,
            long(record.prepared_transaction_offset)?,
            PyBytes::new(py, record.body).into_any(),
            remembered(py, &mut self.topic, topic).into_any(),
            properties.into_any(),
        ];
        PyTuple::new(py, fields).map(Some)
    }

    fn properties(&mut self, py: Python<'py>, text: &'a str) -> PyResult<Option<Bound<'py, PyDict>>> {
        let properties = PyDict::new(py);
        let mut added = Ok(());
        let is_usual = each_property(text, |name, value| {
            let (name, value) = self.property(py, name, value);
            added = properties.set_item(name, value);
            added.is_ok().then_some(())
        });
        added?;
        Ok(is_usual.map(|()| properties))
    }

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
