//! The slots of an index file, in the file's map.

#![allow(unsafe_code)] // the map is memory that others may change: there can be no slice of it

use std::ptr::NonNull;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

const SLOT: usize = 4;

/// A buffer of big-endian numbers of four bytes, which Python may write to between two calls.
pub struct Table {
    cells: NonNull<[u8]>,
    buffer: PyBuffer<u8>,
}

impl Table {
    /// Returns the numbers of a buffer, which is kept until the table is dropped.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::<u8>::get(object)?;
        let cells = buffer.as_slice_ptr().ok_or_else(|| PyValueError::new_err("a table is contiguous bytes"))?;
        Ok(Self { cells, buffer })
    }

    /// Returns a number.
    ///
    /// # Errors
    ///
    /// `ValueError` if the table has no such number.
    pub fn get(&self, index: usize) -> PyResult<i32> {
        let cell = self.cell(index)?;
        // SAFETY: `cell` checked that the four bytes are in the buffer, which `self.buffer` keeps. No reference to
        // them exists, and only the thread of the broker's loop, which is the caller's, writes to them.
        Ok(i32::from_be_bytes(unsafe { cell.read() }))
    }

    /// Sets a number.
    ///
    /// # Errors
    ///
    /// `ValueError` if the table has no such number, or is read-only.
    pub fn set(&self, index: usize, number: i32) -> PyResult<()> {
        if self.buffer.readonly() {
            return Err(PyValueError::new_err("the table is read-only"));
        }
        let cell = self.cell(index)?;
        // SAFETY: as in `get`; the buffer can be written to.
        unsafe { cell.write(number.to_be_bytes()) };
        Ok(())
    }

    fn cell(&self, index: usize) -> PyResult<*mut [u8; SLOT]> {
        let start = index.checked_mul(SLOT).filter(|start| start + SLOT <= self.cells.len());
        let start = start.ok_or_else(|| PyValueError::new_err("a slot is outside of the table"))?;
        // An array of bytes may begin anywhere, so the pointer is aligned.
        Ok(self.cells.as_ptr().cast::<u8>().wrapping_add(start).cast())
    }
}
