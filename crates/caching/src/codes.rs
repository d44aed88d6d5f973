//! Reason codes as tables: an enum, its codes, what they mean and the section behind them, in one place.

/// Declares an enum of reason codes: `Variant = "code", "section", "meaning";`. The section is empty where no
/// specification decides, but the operator or this cache.
#[macro_export]
macro_rules! reason_codes {
    ($(#[$attribute:meta])* pub enum $name:ident {
        $($variant:ident = $code:literal, $section:literal, $meaning:literal;)+
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(#[doc = $meaning] $variant,)+
        }

        impl $name {
            /// All, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The code, stable: for `Cache-Status`, metrics and explanations.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $code,)+
                }
            }

            /// What it means, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)+
                }
            }

            /// The section behind it, such as `RFC 9111 section 3`; empty where none is.
            pub const fn section(self) -> &'static str {
                match self {
                    $(Self::$variant => $section,)+
                }
            }
        }
    };
}

pub(crate) use reason_codes;
