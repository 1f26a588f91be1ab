//! Sends that are stored and answered in one call: each is the only one that was received in a turn of the broker's loop.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3::IntoPyObjectExt;

use crate::panics::caught;
use crate::sends::{AnswerTemplate, PlainSends, SendReader};
use crate::state::{IndexState, LogState, QueueState};

/// Stores such requests, and answers them. What does not change from one to the next is given here.
#[pyclass(frozen)]
pub struct LoneSends {
    reader: Py<SendReader>,
    log: Py<LogState>,
    /// The queues of the store by topic and id.
    queues: Py<PyDict>,
    last_property: String,
    template: Py<AnswerTemplate>,
}

#[pymethods]
impl LoneSends {
    #[new]
    fn new(
        reader: Py<SendReader>,
        log: Py<LogState>,
        queues: Py<PyDict>,
        last_property: String,
        template: Py<AnswerTemplate>,
    ) -> Self {
        Self { reader, log, queues, last_property, template }
    }

    /// Stores the first request, and returns its bytes, the answer, the queue, the tags codes of the messages, the bytes of
    /// their records, and whether they are indexed.
    ///
    /// Otherwise nothing has changed. Returned are the plain requests that were received, if these are several, their queue
    /// is not one of `plain`, or a file has no room; `None` if the first request is not plain.
    #[pyo3(signature = (received, host, plain, index, longest_body, store_timestamp, /))]
    fn store<'py>(
        &self,
        received: &Bound<'py, PyAny>,
        host: (Bound<'py, PyBytes>, i32),
        plain: &Bound<'py, PyAny>,
        index: Option<&Bound<'py, IndexState>>,
        longest_body: usize,
        store_timestamp: i64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        caught(|| {
            let py = received.py();
            let read = SendReader::read_alone(self.reader.bind(py), received, host, &self.last_property, longest_body)?;
            let Some((sends, is_lone)) = read else { return Ok(None) };
            if is_lone {
                if let Some(stored) = self.stored(&sends, plain, index, store_timestamp)? {
                    return Ok(Some(stored));
                }
            }
            sends.into_bound_py_any(py).map(Some)
        })
    }
}

impl LoneSends {
    /// Stores a request as `store` does; `None` if nothing has changed.
    fn stored<'py>(
        &self,
        sends: &PlainSends,
        plain: &Bound<'py, PyAny>,
        index: Option<&Bound<'py, IndexState>>,
        store_timestamp: i64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = plain.py();
        let (topic, queue_id) = sends.first_target();
        let target = (topic, queue_id).into_pyobject(py)?;
        if !plain.contains(&target)? {
            return Ok(None);
        }
        let Some(queue) = self.queues.bind(py).get_item(&target)? else { return Ok(None) };
        let (log, states) = (self.log.bind(py), [queue.cast::<QueueState>()?.clone()]);
        let mut run = sends.packed(log, &states, store_timestamp)?;
        // Before the messages are stored, all is made that is returned: no error may deprive a stored message of its answer.
        let answer = sends.first_answer(py, &run, self.template.get())?;
        let is_indexed = index.is_some() && run.has_keys();
        let tags_codes = sends.tags_codes().swap_remove(0); // a lone request has one queue
        let stored = (sends.first_length(), answer, queue, tags_codes, run.size(), is_indexed).into_bound_py_any(py)?;
        run.write_if_room(log, &states, index, store_timestamp)?;
        Ok(run.is_written.then_some(stored))
    }
}
