//! The account of a heap: chunks, lists of free elements, huge blocks.

use phpprof_zend::heap::account::{MmAccount, read};
use phpprof_zend::heap::of_chunk;
use phpprof_zend::layouts::ROWS;

use crate::image::FuzzImage;

/// The largest cost of a heap that fits into the fuzzer's bytes.
const READS: u64 = 500_000;
const BYTES: u64 = 1 << 31;

/// The account of an image, whose words are a row, and the address of any of the heap's chunks.
pub fn of_image(input: &[u8]) -> Option<MmAccount> {
    let image = FuzzImage::parse(input, READS, BYTES);
    let [row, chunk, _] = image.words;
    let layout = ROWS.get(usize::try_from(row).ok()? % ROWS.len())?;
    read(&image, layout, of_chunk(&image, layout, chunk)?).ok()
}

/// One run of the fuzzer.
pub fn run(input: &[u8]) {
    let Some(account) = of_image(input) else {
        return;
    };
    let _ = (account.unaccounted(), account.reclaimable());
    assert!(account.chunks > 0 && account.free_bytes() <= account.chunks << 21);
}
