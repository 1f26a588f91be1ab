//! The entries of a run in an index file, as drawn in `rocket_broker.store.index_file`.

use std::collections::HashMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::table::Table;

/// Bytes of an entry: hash, commit log offset, seconds and the number of the older entry.
const ENTRY: usize = 20;
const SLOT: usize = 4;

/// The entries of a run, and the slots that lead to them.
#[pyclass]
pub struct IndexRun {
    hashes: Vec<i32>,
    offsets: Vec<i64>,
    slots: Vec<usize>,
    entries: Vec<u8>,
    newest: HashMap<usize, i32>,
    slots_begun: usize,
}

impl IndexRun {
    /// Returns the entries of keys with these hashes, whose messages are at these offsets of the commit log.
    pub fn of(hashes: &[i32], offsets: &[i64], slot_count: u32) -> PyResult<Self> {
        if slot_count == 0 {
            return Err(PyValueError::new_err("an index has at least one slot"));
        }
        // Java's Math.abs(Integer.MIN_VALUE) is negative; Apache's broker takes 0 for it.
        let hashes: Vec<i32> = hashes.iter().map(|hash| hash.checked_abs().unwrap_or(0)).collect();
        let slots = hashes.iter().map(|hash| (hash.unsigned_abs() % slot_count) as usize).collect();
        let (entries, newest) = (Vec::new(), HashMap::new());
        Ok(Self { hashes, offsets: offsets.to_vec(), slots, entries, newest, slots_begun: 0 })
    }
}

#[pymethods]
impl IndexRun {
    fn __len__(&self) -> usize {
        self.hashes.len()
    }

    /// Commit log offset of the first message.
    #[getter]
    fn first_offset(&self) -> Option<i64> {
        self.offsets.first().copied()
    }

    /// Commit log offset of the last message.
    #[getter]
    fn last_offset(&self) -> Option<i64> {
        self.offsets.last().copied()
    }

    /// The entries as the file has them; empty before `prepare`.
    #[getter]
    fn entries<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.entries)
    }

    /// The number of slots that these entries are the first of; 0 before `prepare`.
    #[getter]
    fn slots_begun(&self) -> usize {
        self.slots_begun
    }

    /// Returns the parts of the file with slots of these entries that are not marked as allocated.
    ///
    /// A part has `1 << bits` bytes, and a mark in `allocated`, which is not 0 if the part has space on the disk. The
    /// slots begin `header` bytes behind the file's beginning.
    fn parts_without_space(&self, allocated: &[u8], header: usize, bits: u32) -> PyResult<Vec<usize>> {
        let mut parts = Vec::new();
        for slot in &self.slots {
            let part = header
                .checked_add(slot * SLOT)
                .and_then(|position| position.checked_shr(bits))
                .ok_or_else(|| PyValueError::new_err("positions in the file are too large"))?;
            match allocated.get(part) {
                Some(0) => parts.push(part),
                Some(_) => {}
                None => return Err(PyValueError::new_err("a slot is outside of the file")),
            }
        }
        parts.sort_unstable();
        parts.dedup();
        Ok(parts)
    }

    /// Makes the entries, from the number `first` on, each with the number of the older one in its slot.
    ///
    /// The table is read only; `lead_to` writes it. `seconds` are those since the first message of the file.
    fn prepare(&mut self, table: &Bound<'_, PyAny>, first: i32, seconds: i32) -> PyResult<()> {
        let table = Table::of(table)?;
        let mut entries = Vec::with_capacity(self.hashes.len() * ENTRY);
        let mut newest = HashMap::with_capacity(self.hashes.len());
        let mut slots_begun = 0;
        for (((hash, offset), slot), number) in self.hashes.iter().zip(&self.offsets).zip(&self.slots).zip(first..) {
            let older = if let Some(older) = newest.insert(*slot, number) {
                older
            } else {
                let older = table.get(*slot)?;
                // A kill between slot and header leaves a slot with a number that no entry had.
                if 0 < older && older < first {
                    older
                } else {
                    slots_begun += 1;
                    0
                }
            };
            entries.extend_from_slice(&hash.to_be_bytes());
            entries.extend_from_slice(&offset.to_be_bytes());
            entries.extend_from_slice(&seconds.to_be_bytes());
            entries.extend_from_slice(&older.to_be_bytes());
        }
        (self.entries, self.newest, self.slots_begun) = (entries, newest, slots_begun);
        Ok(())
    }

    /// Writes into the slots the numbers of the newest of these entries.
    fn lead_to(&self, table: &Bound<'_, PyAny>) -> PyResult<()> {
        let table = Table::of(table)?;
        self.newest.iter().try_for_each(|(slot, number)| table.set(*slot, *number))
    }
}
