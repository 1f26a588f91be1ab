//! The fields of a record that a broker has stored, as drawn in `rocket_remoting.wire.record`.

use crate::record::{BEFORE_HOSTS, BORN_HOST_V6, HOST_FLAGS, MAGIC_V1, MAGIC_V2, STORE_HOST_V6};

/// A record of either version, with hosts of either family. Nothing is known of its texts.
pub struct StoredRecord<'a> {
    head: &'a [u8; BEFORE_HOSTS],
    pub born_host: &'a [u8],
    pub store_timestamp: i64,
    pub store_host: &'a [u8],
    pub reconsume_times: i32,
    pub prepared_transaction_offset: i64,
    pub body: &'a [u8],
    pub topic: &'a [u8],
    pub properties: &'a [u8],
    pub size: usize,
}

impl<'a> StoredRecord<'a> {
    /// Returns the record at a position; `None` if there is none, or its lengths do not agree with its size.
    pub fn at(data: &'a [u8], position: usize) -> Option<Self> {
        let data = data.get(position..)?;
        let size = usize::try_from(int(*data.first_chunk()?)).ok()?;
        let mut rest = Rest(data.get(..size)?);
        let head: &[u8; BEFORE_HOSTS] = rest.array()?;
        let sys_flag = int_in(head, 36);
        let born_host = rest.bytes(host_size(sys_flag & BORN_HOST_V6))?;
        let store_timestamp = long(*rest.array()?);
        let store_host = rest.bytes(host_size(sys_flag & STORE_HOST_V6))?;
        let reconsume_times = int(*rest.array()?);
        let prepared_transaction_offset = long(*rest.array()?);
        let body_length = usize::try_from(int(*rest.array()?)).ok()?;
        let body = rest.bytes(body_length)?;
        let topic_length = match int_in(head, 4).cast_unsigned() {
            MAGIC_V1 => usize::from(u8::from_be_bytes(*rest.array()?)),
            MAGIC_V2 => rest.short()?,
            _ => return None,
        };
        let topic = rest.bytes(topic_length)?;
        let properties_length = rest.short()?;
        let properties = rest.bytes(properties_length)?;
        rest.0.is_empty().then_some(Self {
            head,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            body,
            topic,
            properties,
            size,
        })
    }

    /// Returns whether the record is of version 1, with two IPv4 hosts.
    pub fn is_plain(&self) -> bool {
        self.head[4..8] == MAGIC_V1.to_be_bytes() && self.sys_flag() & HOST_FLAGS == 0
    }

    pub fn checksum(&self) -> i32 {
        int_in(self.head, 8)
    }

    pub fn queue_id(&self) -> i32 {
        int_in(self.head, 12)
    }

    pub fn flag(&self) -> i32 {
        int_in(self.head, 16)
    }

    pub fn queue_offset(&self) -> i64 {
        long_in(self.head, 20)
    }

    pub fn commit_log_offset(&self) -> i64 {
        long_in(self.head, 28)
    }

    pub fn sys_flag(&self) -> i32 {
        int_in(self.head, 36)
    }

    pub fn born_timestamp(&self) -> i64 {
        long_in(self.head, 40)
    }
}

/// The bytes of a record that are still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// Takes the next bytes; `None` if there are fewer.
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes the next bytes; `None` if there are fewer.
    fn array<const COUNT: usize>(&mut self) -> Option<&'a [u8; COUNT]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes a length of two bytes; `None` if it is negative.
    fn short(&mut self) -> Option<usize> {
        usize::try_from(i16::from_be_bytes(*self.array()?)).ok()
    }
}

/// Returns the number of bytes of a host: its address and a port of four bytes.
fn host_size(is_v6: i32) -> usize {
    if is_v6 == 0 {
        8
    } else {
        20
    }
}

fn int(field: [u8; 4]) -> i32 {
    i32::from_be_bytes(field)
}

fn long(field: [u8; 8]) -> i64 {
    i64::from_be_bytes(field)
}

fn int_in(head: &[u8; BEFORE_HOSTS], position: usize) -> i32 {
    let field = &head[position..position + 4];
    i32::from_be_bytes([field[0], field[1], field[2], field[3]])
}

fn long_in(head: &[u8; BEFORE_HOSTS], position: usize) -> i64 {
    let (high, low) = (int_in(head, position), int_in(head, position + 4));
    i64::from(high) << 32 | i64::from(low.cast_unsigned())
}
