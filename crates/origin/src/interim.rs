//! Interim responses of an origin.

use message::fields::PackedFields;

/// An interim (1xx) response other than 101.
#[derive(Clone, Debug)]
pub struct Interim {
    /// 100, or 102 to 199.
    pub status: http::StatusCode,
    /// Fields, without those of the origin's connection.
    pub fields: PackedFields,
}
