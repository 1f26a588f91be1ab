//! Where the files of a store end, and how much space they have.
//!
//! The log, the queues and the index of Python are made of these, so that the core and Python count with the same numbers.

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict, PyTuple};

use crate::index::{checked, Header, Key, Table};
use crate::memory::{byte_at, Memory};

/// The memory of a file, and a position in it.
pub type FilePlace = (Memory, usize);

/// Bytes that each file of the log keeps, for the blank that ends it.
const SMALLEST_BLANK: i64 = 8;
/// Bytes of an entry of a queue.
const ENTRY: i64 = 20;

/// A file of a store.
#[pyclass(subclass)]
#[derive(Default)]
pub struct FileState {
    #[pyo3(get, set)]
    base: i64,
    #[pyo3(get, set)]
    size: i64,
    #[pyo3(get, set)]
    allocated: i64,
    #[pyo3(get, set)]
    used: bool,
    view: Option<(Py<PyAny>, Memory)>,
}

#[pymethods]
impl FileState {
    /// Takes what the derived class is made of.
    #[new]
    #[pyo3(signature = (*_arguments, **_keywords))]
    fn new(_arguments: &Bound<'_, PyTuple>, _keywords: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    #[getter]
    fn view(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.view.as_ref().map(|(view, _)| view.clone_ref(py))
    }

    #[setter]
    fn set_view(&mut self, view: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        self.view = view.map(|view| Memory::of(&view).map(|memory| (view.unbind(), memory))).transpose()?;
        Ok(())
    }
}

impl FileState {
    /// Returns the memory of the file; `None` if it is not mapped, or only for reading.
    fn writable(&self) -> Option<&Memory> {
        self.view.as_ref().map(|(_, memory)| memory).filter(|memory| memory.is_writable())
    }

    /// Returns the memory and the position of an offset; `None` if nothing can be written there before `room`.
    fn place(&mut self, offset: i64, count: usize, room: i64) -> Option<FilePlace> {
        let memory = self.writable()?.clone();
        let position = offset.checked_sub(self.base)?;
        let end = position.checked_add(i64::try_from(count).ok()?)?;
        let position = usize::try_from(position).ok().filter(|_| end <= room)?;
        self.used = true;
        Some((memory, position))
    }
}

/// The commit log.
#[pyclass(subclass)]
#[derive(Default)]
pub struct LogState {
    #[pyo3(get, set)]
    pub end: i64,
    #[pyo3(get, set)]
    committed: i64,
    #[pyo3(get, set)]
    last_record: i64,
    #[pyo3(get, set)]
    last_timestamp: i64,
    #[pyo3(get, set)]
    tail: Option<Py<FileState>>,
}

#[pymethods]
impl LogState {
    #[new]
    #[pyo3(signature = (*_arguments, **_keywords))]
    fn new(_arguments: &Bound<'_, PyTuple>, _keywords: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }
}

impl LogState {
    /// Returns where the next records go; `None` if the last file has no space for them.
    pub fn place(&self, py: Python<'_>, size: usize) -> PyResult<Option<FilePlace>> {
        let Some(tail) = &self.tail else { return Ok(None) };
        let mut tail = tail.try_borrow_mut(py)?;
        let room = tail.allocated.min(tail.size - SMALLEST_BLANK);
        Ok(tail.place(self.end, size, room))
    }

    /// Counts records that have been written there, up to an offset.
    pub fn appended(&mut self, end: i64, last_size: i64, store_timestamp: i64) {
        (self.end, self.committed) = (end, end);
        self.last_record = end - last_size;
        self.last_timestamp = store_timestamp;
    }
}

/// A consume queue.
#[pyclass(subclass)]
#[derive(Default)]
pub struct QueueState {
    #[pyo3(get, set)]
    pub max_offset: i64,
    #[pyo3(get, set)]
    max_physical: i64,
    #[pyo3(get, set)]
    tail: Option<Py<FileState>>,
}

#[pymethods]
impl QueueState {
    #[new]
    #[pyo3(signature = (*_arguments, **_keywords))]
    fn new(_arguments: &Bound<'_, PyTuple>, _keywords: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }
}

impl QueueState {
    /// Returns where the next entries go; `None` if the last file has no space for them.
    pub fn place(&self, py: Python<'_>, size: usize) -> PyResult<Option<FilePlace>> {
        let Some(tail) = &self.tail else { return Ok(None) };
        let Some(offset) = self.max_offset.checked_mul(ENTRY) else { return Ok(None) };
        let mut tail = tail.try_borrow_mut(py)?;
        let room = tail.allocated;
        Ok(tail.place(offset, size, room))
    }

    /// Counts entries that have been written there, before a number; the last message ends at an offset of the log.
    pub fn appended(&mut self, max_offset: i64, max_physical: i64) {
        (self.max_offset, self.max_physical) = (max_offset, max_physical);
    }
}

/// A file of the index.
#[pyclass(subclass)]
#[derive(Default)]
pub struct IndexState {
    #[pyo3(get, set)]
    begin_timestamp: i64,
    #[pyo3(get, set)]
    end_timestamp: i64,
    #[pyo3(get, set)]
    begin_offset: i64,
    #[pyo3(get, set)]
    end_offset: i64,
    #[pyo3(get, set)]
    slots_used: i32,
    #[pyo3(get, set)]
    count: i32,
    #[pyo3(get, set)]
    file: Option<Py<FileState>>,
    #[pyo3(get, set)]
    slots: u32,
    #[pyo3(get, set)]
    chunks_allocated: Option<Py<PyByteArray>>,
    #[pyo3(get, set)]
    chunk_bits: u32,
}

#[pymethods]
impl IndexState {
    #[new]
    #[pyo3(signature = (*_arguments, **_keywords))]
    fn new(_arguments: &Bound<'_, PyTuple>, _keywords: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }
}

impl IndexState {
    /// Returns the table for entries of keys; `None` if the file has no space for them.
    pub fn table_for(&self, py: Python<'_>, keys: &[Key]) -> PyResult<Option<Table>> {
        let (Some(file), Some(chunks)) = (&self.file, &self.chunks_allocated) else { return Ok(None) };
        let mut file = file.try_borrow_mut(py)?;
        let Some(memory) = file.writable() else { return Ok(None) };
        let table = Table {
            file: memory.clone(),
            slot_count: checked(self.slots)?,
            begin_timestamp: self.begin_timestamp,
            begin_offset: self.begin_offset,
            slots_used: self.slots_used,
            first: self.count,
        };
        let chunks = chunks.bind(py);
        let has_space = |position: usize| {
            position.checked_shr(self.chunk_bits).and_then(|chunk| byte_at(chunks, chunk)).is_some_and(|mark| mark != 0)
        };
        let room = usize::try_from(file.allocated).unwrap_or(0);
        let has_room = table.has_room(keys, room, has_space);
        file.used |= has_room;
        Ok(has_room.then_some(table))
    }

    /// Takes over the header, to which entries have been added.
    pub fn appended(&mut self, header: Header) {
        (self.begin_timestamp, self.end_timestamp, self.begin_offset, self.end_offset, self.slots_used, self.count) =
            header;
    }
}
