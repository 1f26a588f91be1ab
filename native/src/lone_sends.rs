//! Sends that are stored and answered in one call: each is all that was received in a turn of the broker's loop.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::panics::caught;
use crate::sends::{AnswerTemplate, SendReader};
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

/// The answer, the queue, the tags codes of the messages, the bytes of their records, and whether they were indexed.
type Stored<'py> = (Bound<'py, PyBytes>, Bound<'py, PyAny>, Vec<i64>, usize, bool);

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

    /// Stores a request and returns its answer; `None` if nothing has changed, because it is unusual, because its queue is
    /// not one of `plain`, or because a file has no room.
    #[pyo3(signature = (received, host, plain, index, longest_body, store_timestamp, /))]
    fn store<'py>(
        &self,
        received: &Bound<'py, PyAny>,
        host: (Bound<'py, PyBytes>, i32),
        plain: &Bound<'py, PyAny>,
        index: Option<&Bound<'py, IndexState>>,
        longest_body: usize,
        store_timestamp: i64,
    ) -> PyResult<Option<Stored<'py>>> {
        caught(|| {
            let py = received.py();
            let sends = SendReader::read_only(self.reader.bind(py), received, host, &self.last_property)?;
            let Some(sends) = sends.filter(|sends| sends.longest_body() <= longest_body) else { return Ok(None) };
            let (topic, queue_id) = sends.first_target();
            let target = (topic, queue_id).into_pyobject(py)?;
            if !plain.contains(&target)? {
                return Ok(None);
            }
            let Some(queue) = self.queues.bind(py).get_item(&target)? else { return Ok(None) };
            let state = queue.cast::<QueueState>()?.clone();
            let run = sends.pack(self.log.bind(py), vec![state], index, store_timestamp)?;
            if !run.is_written {
                return Ok(None);
            }
            let answers = sends.answers(py, &run, self.template.get())?;
            let is_indexed = run.header.is_some();
            let tags_codes = sends.tags_codes().swap_remove(0); // a request has one queue
            Ok(answers.into_iter().next().map(|(_, answer)| (answer, queue, tags_codes, run.size(), is_indexed)))
        })
    }
}
