//! Messages shared by several recipients, stored once.

use std::sync::Arc;

use crate::pins::Buffered;

/// Bytes sent to several clients. They count as one buffer until the last client has read them.
#[derive(Debug)]
pub(crate) struct Posted {
    bytes: Vec<u8>,
    buffered: Arc<Buffered>,
}

impl Posted {
    pub(crate) fn new(bytes: Vec<u8>, buffered: &Arc<Buffered>) -> Arc<Self> {
        buffered.account(0, bytes.capacity());
        Arc::new(Self { bytes, buffered: Arc::clone(buffered) })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        self.buffered.account(self.bytes.capacity(), 0);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn it_counts_once_and_until_the_last_has_read_it() {
        let buffered = Arc::new(Buffered::of_nothing());
        let posted = Posted::new(vec![7; 1000], &buffered);
        let mut all = vec![Arc::clone(&posted), posted];
        assert_eq!(buffered.bytes(), 1000);
        all.pop();
        assert_eq!(buffered.bytes(), 1000);
        all.pop();
        assert_eq!(buffered.bytes(), 0);
    }
}
