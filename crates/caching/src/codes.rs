//! Tables of reason codes, which declare an enum with its codes, their meanings and their sections in one place.

/// Declares an enum of reason codes: `Variant = "code", "section", "meaning";`. The section is empty if the operator or
/// this cache decides, not a specification.
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
            /// All codes, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the code, which is stable: for `Cache-Status`, metrics and explanations.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $code,)+
                }
            }

            /// Returns the meaning in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)+
                }
            }

            /// Returns the section that defines the code, such as `RFC 9111 section 3`; empty if there is none.
            pub const fn section(self) -> &'static str {
                match self {
                    $(Self::$variant => $section,)+
                }
            }
        }
    };
}

pub(crate) use reason_codes;
