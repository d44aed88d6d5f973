//! Charges and their classes.

use crate::{Budget, OverBudget, Placement, Segment, allocated_bytes};

fn classes(budget: &Budget) -> [u64; 3] {
    [budget.filling_bytes(), budget.stored_bytes(), budget.pinned_bytes()]
}

#[test]
fn a_charge_is_in_one_class_at_a_time() {
    let budget = Budget::new(1000, 1000, None);
    let charge = budget.reserve(100).unwrap();
    assert_eq!(classes(&budget), [100, 0, 0]);
    charge.enter();
    assert_eq!(classes(&budget), [0, 100, 0]);
    charge.enter();
    charge.leave();
    assert_eq!(classes(&budget), [0, 100, 0], "one of two entries still holds it");
    charge.leave();
    assert_eq!(classes(&budget), [0, 0, 100]);
    charge.enter();
    assert_eq!(classes(&budget), [0, 100, 0], "what is pinned can be stored again");
    charge.leave();
    drop(charge);
    assert_eq!(classes(&budget), [0, 0, 0]);
    assert_eq!(budget.live_bytes(), 0);
}

#[test]
fn a_reservation_never_passes_a_limit() {
    let budget = Budget::new(1000, 600, None);
    let mut fill = budget.reserve(600).unwrap();
    assert_eq!(budget.reserve(1).unwrap_err(), OverBudget { bytes: 1 });
    assert_eq!(fill.grow(1).unwrap_err(), OverBudget { bytes: 1 });
    assert_eq!(fill.bytes(), 600);
    let record = budget.reserve_record(400).unwrap();
    assert_eq!(budget.reserve_record(1).unwrap_err(), OverBudget { bytes: 1 });
    assert_eq!(budget.reserve_record(usize::MAX).unwrap_err(), OverBudget { bytes: usize::MAX });
    assert_eq!(budget.refused(), 4);
    drop((fill, record));
    assert_eq!(budget.live_bytes(), 0);
}

#[test]
fn growing_is_counted_once() {
    let budget = Budget::new(1000, 1000, None);
    let mut charge = budget.reserve(10).unwrap();
    charge.grow(20).unwrap();
    assert_eq!((charge.bytes(), budget.live_bytes(), budget.filling_bytes()), (30, 30, 30));
    drop(charge);
    assert_eq!((budget.live_bytes(), budget.filling_bytes()), (0, 0));
}

#[test]
fn a_segment_is_counted_until_the_last_slice_of_it_goes() {
    let budget = Budget::new(10_000, 10_000, None);
    let segment = Segment::gather(&budget, Placement::File, &[b"ab".as_slice(), b"", b"cdef"]).unwrap();
    assert_eq!(segment.to_bytes().unwrap(), b"abcdef".as_slice());
    let counted = (Segment::OVERHEAD_BYTES + allocated_bytes(6)) as u64;
    let slice = segment.to_bytes().unwrap().slice(2..4);
    drop(segment);
    assert_eq!((&*slice, budget.live_bytes()), (b"cd".as_slice(), counted));
    drop(slice);
    assert_eq!(budget.live_bytes(), 0);
}

#[test]
fn blocks_are_counted_in_size_classes() {
    let cases = [
        (0, 0),
        (1, 16),
        (16, 16),
        (64, 64),
        (65, 80),
        (128, 128),
        (129, 160),
        (1000, 1024),
        (1024, 1024),
        (1025, 1280),
        (1 << 20, 1 << 20),
        (usize::MAX, usize::MAX),
    ];
    for (len, expected) in cases {
        assert_eq!(allocated_bytes(len), expected, "{len}");
    }
}
