//! The records of pulls as columns, in the buffers of Apache Arrow.
//!
//! ```text
//! numbers    validity  values
//! texts      validity  offsets  data                          value n is data[offsets[n]..offsets[n + 1]]
//! all        offsets  offsets  data  offsets  data            of the rows; of the names; of the values
//! properties
//! ```
//!
//! Numbers and offsets, of four bytes, are in the order of this machine. A column without a validity has no null.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::panics::caught;
use crate::properties::each_property;
use crate::stored_record::StoredRecord;

/// The bit of the system flag that says that the body is compressed.
const COMPRESSED: i32 = 1;
/// The number of properties that a message of a column with all properties may have: each is compared with the others.
const MOST_PROPERTIES: usize = 32;

type Buffers<'py> = Vec<Option<Bound<'py, PyBytes>>>;

/// Returns the number of records, and the buffers of a column for each of the fields, for each of the properties and, if
/// `with_all` is set, for all properties; `None` if a record is unusual.
///
/// Unusual are compressed bodies and, if properties are read, a property twice in a message, and a form that
/// `each_property` does not take.
#[pyfunction]
#[pyo3(signature = (data, fields, properties, with_all, /))]
#[allow(clippy::needless_pass_by_value)] // Python's lists
pub fn read_columns<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyBytes>,
    fields: Vec<String>,
    properties: Vec<String>,
    with_all: bool,
) -> PyResult<Option<(usize, Vec<Buffers<'py>>)>> {
    caught(|| {
        let data = data.as_bytes();
        let rows = StoredRecord::at(data, 0).map_or(0, |record| data.len() / record.size);
        let room = Room { rows, bytes: data.len() };
        let fields = fields.iter().map(|name| Field::named(name, room)).collect::<PyResult<Vec<_>>>()?;
        let properties = properties.iter().map(|name| Property::named(name, room)).collect();
        let mut columns = Columns { fields, properties, all: with_all.then(Properties::default), rows: 0 };
        Ok(columns.read(data).map(|()| (columns.rows, columns.buffers(py))))
    })
}

/// The room that columns have from their begin on: for as many rows as there are if all records are like the first.
#[derive(Clone, Copy, Default)]
struct Room {
    rows: usize,
    /// Most bytes of texts, however long the first of them is.
    bytes: usize,
}

struct Columns<'a> {
    fields: Vec<Field>,
    properties: Vec<Property<'a>>,
    all: Option<Properties<'a>>,
    rows: usize,
}

impl<'a> Columns<'a> {
    /// Adds the records; returns `None` if one of them is unusual.
    fn read(&mut self, data: &'a [u8]) -> Option<()> {
        let has_properties = self.all.is_some() || !self.properties.is_empty();
        let mut position = 0;
        while position < data.len() {
            let record = StoredRecord::at(data, position).filter(|record| record.sys_flag() & COMPRESSED == 0)?;
            self.fields.iter_mut().try_for_each(|field| field.add(position, &record))?;
            position += record.size;
            if has_properties {
                self.add_properties(std::str::from_utf8(record.properties).ok()?)?;
            }
            self.rows += 1;
        }
        Some(())
    }

    fn add_properties(&mut self, text: &'a str) -> Option<()> {
        let Self { properties, all, .. } = self;
        each_property(text, |name, value| {
            if let Some(property) = properties.iter_mut().find(|property| property.name == name) {
                property.add(value)?;
            }
            all.as_mut().map_or(Some(()), |all| all.add(name, value))
        })?;
        properties.iter_mut().try_for_each(Property::end_row)?;
        all.as_mut().map_or(Some(()), Properties::end_row)
    }

    fn buffers(self, py: Python<'_>) -> Vec<Buffers<'_>> {
        let fields = self.fields.into_iter().map(|field| field.buffers(py));
        let properties = self.properties.into_iter().map(|property| property.buffers(py));
        fields.chain(properties).chain(self.all.map(|all| all.buffers(py))).collect()
    }
}

/// The column of a field that each record has.
enum Field {
    Int(fn(&StoredRecord) -> i32, Vec<u8>),
    Long(fn(&StoredRecord) -> i64, Vec<u8>),
    Body(Pieces),
    Topic(Pieces),
    /// Where the record begins.
    Position(Vec<u8>),
}

impl Field {
    /// Returns the empty column of the field with this name, with this room.
    ///
    /// # Errors
    ///
    /// `ValueError` if there is no such field.
    #[allow(clippy::redundant_closure_for_method_calls)] // a method's path is not general over the record's lifetime
    fn named(name: &str, room: Room) -> PyResult<Self> {
        let ints = || Vec::with_capacity(size_of::<i32>() * room.rows);
        let longs = || Vec::with_capacity(size_of::<i64>() * room.rows);
        Ok(match name {
            "queue_id" => Self::Int(|record| record.queue_id(), ints()),
            "flag" => Self::Int(|record| record.flag(), ints()),
            "sys_flag" => Self::Int(|record| record.sys_flag(), ints()),
            "reconsume_times" => Self::Int(|record| record.reconsume_times, ints()),
            "queue_offset" => Self::Long(|record| record.queue_offset(), longs()),
            "born_timestamp" => Self::Long(|record| record.born_timestamp(), longs()),
            "store_timestamp" => Self::Long(|record| record.store_timestamp, longs()),
            "body" => Self::Body(Pieces::with(room)),
            "topic" => Self::Topic(Pieces::with(room)),
            "position" => Self::Position(longs()),
            _ => return Err(PyValueError::new_err(format!("a record has no field {name:?}"))),
        })
    }

    fn add(&mut self, position: usize, record: &StoredRecord) -> Option<()> {
        match self {
            Self::Int(of, values) => values.extend_from_slice(&of(record).to_ne_bytes()),
            Self::Long(of, values) => values.extend_from_slice(&of(record).to_ne_bytes()),
            Self::Body(pieces) => pieces.add(record.body)?,
            Self::Topic(pieces) => pieces.add(std::str::from_utf8(record.topic).ok()?.as_bytes())?,
            Self::Position(values) => values.extend_from_slice(&i64::try_from(position).ok()?.to_ne_bytes()),
        }
        Some(())
    }

    fn buffers(self, py: Python<'_>) -> Buffers<'_> {
        match self {
            Self::Int(_, values) | Self::Long(_, values) | Self::Position(values) => {
                vec![None, Some(PyBytes::new(py, &values))]
            }
            Self::Body(pieces) | Self::Topic(pieces) => [vec![None], pieces.buffers(py)].concat(),
        }
    }
}

/// Pieces of bytes, one after the other.
struct Pieces {
    offsets: Vec<u8>,
    data: Vec<u8>,
    room: Room,
}

impl Pieces {
    /// Returns no pieces; the first one shows how much of the room they need.
    fn with(room: Room) -> Self {
        let mut offsets = Vec::with_capacity(size_of::<i32>() * (room.rows + 1));
        offsets.extend_from_slice(&0_i32.to_ne_bytes());
        Self { offsets, data: Vec::new(), room }
    }

    fn len(&self) -> usize {
        self.offsets.len() / size_of::<i32>() - 1
    }

    /// Adds a piece; returns `None` if its end is too far for an offset.
    fn add(&mut self, piece: &[u8]) -> Option<()> {
        if self.data.capacity() == 0 {
            self.data.reserve(piece.len().saturating_mul(self.room.rows).min(self.room.bytes));
        }
        self.data.extend_from_slice(piece);
        self.offsets.extend_from_slice(&i32::try_from(self.data.len()).ok()?.to_ne_bytes());
        Some(())
    }

    fn buffers<'py>(&self, py: Python<'py>) -> Buffers<'py> {
        vec![Some(PyBytes::new(py, &self.offsets)), Some(PyBytes::new(py, &self.data))]
    }
}

/// The column of a property that a message may have.
struct Property<'a> {
    name: &'a str,
    values: Pieces,
    /// A bit for each row, which is set if the message has the property.
    validity: Vec<u8>,
    rows: usize,
    nulls: usize,
}

impl<'a> Property<'a> {
    fn named(name: &'a str, room: Room) -> Self {
        Self { name, values: Pieces::with(room), validity: Vec::new(), rows: 0, nulls: 0 }
    }

    /// Adds the value of the next row; returns `None` if the row has one already.
    fn add(&mut self, value: &str) -> Option<()> {
        (self.values.len() == self.rows).then_some(())?;
        self.values.add(value.as_bytes())
    }

    fn end_row(&mut self) -> Option<()> {
        let bit = self.rows % 8;
        if bit == 0 {
            self.validity.push(0);
        }
        if self.values.len() > self.rows {
            *self.validity.last_mut()? |= 1 << bit;
        } else {
            self.values.add(b"")?;
            self.nulls += 1;
        }
        self.rows += 1;
        Some(())
    }

    fn buffers(self, py: Python<'_>) -> Buffers<'_> {
        let validity = (self.nulls > 0).then(|| PyBytes::new(py, &self.validity));
        [vec![validity], self.values.buffers(py)].concat()
    }
}

/// The column of all properties.
struct Properties<'a> {
    offsets: Vec<u8>,
    names: Pieces,
    values: Pieces,
    /// The names of the row that has not ended.
    row: Vec<&'a str>,
}

impl Default for Properties<'_> {
    fn default() -> Self {
        let (names, values) = (Pieces::with(Room::default()), Pieces::with(Room::default()));
        Self { offsets: vec![0; size_of::<i32>()], names, values, row: Vec::new() }
    }
}

impl<'a> Properties<'a> {
    /// Adds a property to the row; returns `None` if the row has the name already, or too many properties.
    fn add(&mut self, name: &'a str, value: &str) -> Option<()> {
        (self.row.len() < MOST_PROPERTIES && !self.row.contains(&name)).then_some(())?;
        self.row.push(name);
        self.names.add(name.as_bytes())?;
        self.values.add(value.as_bytes())
    }

    fn end_row(&mut self) -> Option<()> {
        self.row.clear();
        self.offsets.extend_from_slice(&i32::try_from(self.names.len()).ok()?.to_ne_bytes());
        Some(())
    }

    fn buffers(self, py: Python<'_>) -> Buffers<'_> {
        [vec![Some(PyBytes::new(py, &self.offsets))], self.names.buffers(py), self.values.buffers(py)].concat()
    }
}
