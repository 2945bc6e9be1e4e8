//! Where a request may name the user who is to sign in.
//!
//! What signs people in takes a [`SignInName`], and a request's text becomes one
//! only by its [`NamePlace`]. Guards look at all places, so an endpoint can't
//! read a name where no guard looks.

/// What a place is to HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameCarrier {
    /// A parameter of the query or of a form, or a member of JSON.
    Parameter(&'static str),
    /// A header field of this name.
    Header(&'static str),
    /// The user of `Authorization: Basic`.
    Basic,
}

macro_rules! places {
    ($($(#[$doc:meta])* $place:ident = $carrier:expr,)*) => {
        /// A place in which a request names the user who is to sign in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum NamePlace {
            $($(#[$doc])* $place,)*
        }

        impl NamePlace {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$place),*];

            /// What it is to HTTP.
            pub const fn carrier(self) -> NameCarrier {
                match self {
                    $(Self::$place => $carrier,)*
                }
            }
        }
    };
}

places! {
    /// `username` of the password grant and of the sign-in pages.
    Username = NameCarrier::Parameter("username"),
    /// What is typed into a callback of `authenticate`.
    CallbackValue = NameCarrier::Parameter("value"),
    /// `authIndexValue` of `authenticate`, where `authIndexType` is `user`.
    IndexValue = NameCarrier::Parameter("authIndexValue"),
    /// The header of `authenticate`.
    ServiceHeader = NameCarrier::Header("x-service-username"),
    /// The imitated header of `authenticate`.
    OpenAmHeader = NameCarrier::Header("x-openam-username"),
    /// A password that the gateway exchanges for a token.
    Basic = NameCarrier::Basic,
}

impl NamePlace {
    /// The name of its parameter or header; none for a scheme of `Authorization`.
    pub const fn name(self) -> &'static str {
        match self.carrier() {
            NameCarrier::Parameter(name) | NameCarrier::Header(name) => name,
            NameCarrier::Basic => "",
        }
    }

    /// The parameters that name a user.
    pub fn parameters() -> impl Iterator<Item = &'static str> {
        let carriers = Self::ALL.iter().map(|place| place.carrier());
        carriers.filter_map(|carrier| match carrier {
            NameCarrier::Parameter(name) => Some(name),
            NameCarrier::Header(_) | NameCarrier::Basic => None,
        })
    }

    /// The name that a request says in this place.
    pub fn says(self, text: impl Into<String>) -> SignInName {
        SignInName(text.into())
    }
}

/// The name of the user who is to sign in, as a request says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignInName(String);

impl SignInName {
    /// A name that came in a place before and that the provider has signed since.
    pub fn signed(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_places_have_one_name() {
        let names: Vec<_> = NamePlace::ALL.iter().map(|place| place.name()).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name}");
        }
        let parameters: Vec<_> = NamePlace::parameters().collect();
        assert_eq!(parameters, ["username", "value", "authIndexValue"]);
    }
}
