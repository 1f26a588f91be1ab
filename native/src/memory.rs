//! Memory of Python's objects, such as the map of a file.

#![allow(unsafe_code)] // the memory may be changed by others: there can be no slice of it

use std::ptr::NonNull;
use std::sync::atomic::{compiler_fence, Ordering};
use std::sync::Arc;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

/// The bytes of an object, which Python may write to between two calls. They are kept until this and its clones are
/// dropped.
#[derive(Clone)]
pub struct Memory {
    cells: NonNull<[u8]>,
    buffer: Arc<PyBuffer<u8>>,
}

// SAFETY: `buffer` keeps the bytes, whatever thread drops it, and they are read and written only by threads that hold
// Python's lock.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Returns the bytes of an object, for reading.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::<u8>::get(object)?;
        let cells = buffer.as_slice_ptr().ok_or_else(|| PyValueError::new_err("the memory is not contiguous"))?;
        Ok(Self { cells, buffer: Arc::new(buffer) })
    }

    /// Returns the bytes of an object, for reading and writing.
    pub fn writable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let memory = Self::of(object)?;
        if !memory.is_writable() {
            return Err(PyValueError::new_err("the memory is read-only"));
        }
        Ok(memory)
    }

    /// Returns whether the bytes may be written.
    pub fn is_writable(&self) -> bool {
        !self.buffer.readonly()
    }

    /// Returns the bytes at a position.
    ///
    /// # Errors
    ///
    /// `ValueError` if the memory has no such bytes.
    pub fn get<const COUNT: usize>(&self, position: usize) -> PyResult<[u8; COUNT]> {
        if !self.has(position, COUNT) {
            return Err(outside());
        }
        let start = self.cells.as_ptr().cast::<u8>().wrapping_add(position);
        // SAFETY: `has` says that the bytes are in the buffer, which `self.buffer` keeps. No reference to them
        // exists, and only the thread of the broker's loop, which is the caller's, writes to them. An array of bytes
        // may begin anywhere.
        Ok(unsafe { start.cast::<[u8; COUNT]>().read() })
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Adds the bytes at a position to others.
    ///
    /// # Errors
    ///
    /// `ValueError` if the memory has no such bytes.
    pub fn append_to(&self, position: usize, count: usize, bytes: &mut Vec<u8>) -> PyResult<()> {
        if !self.has(position, count) {
            return Err(outside());
        }
        let start = bytes.len();
        bytes.reserve(count);
        let source = self.cells.as_ptr().cast::<u8>().wrapping_add(position);
        // SAFETY: there is room for the bytes, which `has` finds in the buffer that `self.buffer` keeps, and which lie
        // elsewhere than Rust's own. They are copied before they count.
        unsafe {
            bytes.as_mut_ptr().add(start).copy_from_nonoverlapping(source, count);
            bytes.set_len(start + count);
        }
        Ok(())
    }

    /// Returns whether there are this many bytes at a position.
    pub fn has(&self, position: usize, count: usize) -> bool {
        position.checked_add(count).is_some_and(|end| end <= self.cells.len())
    }

    /// Writes bytes at a position.
    ///
    /// # Panics
    ///
    /// If the memory has no such bytes, or is read-only.
    pub fn write(&self, position: usize, bytes: &[u8]) {
        assert!(self.has(position, bytes.len()) && self.is_writable(), "the caller checks both");
        let start = self.cells.as_ptr().cast::<u8>().wrapping_add(position);
        // SAFETY: the bytes are in the buffer, which `self.buffer` keeps and which can be written to; the new ones are
        // Rust's own, and so lie elsewhere. The rest is as in `get`.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

/// Returns the byte at a position of an array; `None` if it has no such byte.
pub fn byte_at(array: &Bound<'_, PyByteArray>, position: usize) -> Option<u8> {
    // SAFETY: nothing else runs, and so nothing changes the array, while the byte is read.
    (position < array.len()).then(|| unsafe { array.data().add(position).read() })
}

/// Returns the error for a position that a memory does not have.
pub fn outside() -> PyErr {
    PyValueError::new_err("a position is outside of the memory")
}

/// Keeps the writes before this in front of those behind it, as a process that is killed in between leaves them.
pub fn in_order() {
    compiler_fence(Ordering::SeqCst);
}
