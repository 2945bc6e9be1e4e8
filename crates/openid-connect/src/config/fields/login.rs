//! How users sign in and out, and what clients are answered.

use serde_json::json;

use crate::config::address::Address;
use crate::config::fields::types::{Bounded, Set, Texts};
use crate::config::methods::{Method, ON_BY_DEFAULT};
use doorward_plugin_api::config::{AnyText, FieldWord};
use doorward_plugin_api::{config, words};

words! {
    /// A thing that users get who have signed in.
    pub(crate) enum LoginToken {
        /// The ID token.
        IdToken = "id_token",
        /// The access token.
        AccessToken = "access_token",
        /// The refresh token.
        RefreshToken = "refresh_token",
        /// The whole answer of the token endpoint.
        Tokens = "tokens",
        /// What introspection says.
        Introspection = "introspection",
    }
}

words! {
    /// What is done for a user who has signed in.
    pub(crate) enum Action {
        /// The request that wanted the login goes on.
        Upstream = "upstream",
        /// The tokens are the answer.
        Response = "response",
        /// The browser is sent on.
        Redirect = "redirect",
    }
}

words! {
    /// The part of an address in which tokens are.
    pub(crate) enum RedirectMode {
        /// Behind the `#`.
        Fragment = "fragment",
        /// Behind the `?`.
        Query = "query",
    }
}

words! {
    /// A method of requests that ask for a logout.
    pub(crate) enum LogoutMethod {
        /// As a link does.
        Get = "GET",
        /// As a form does.
        Post = "POST",
        /// As a script does.
        Delete = "DELETE",
    }
}

words! {
    /// How answers of the provider come.
    pub(crate) enum Mode {
        /// In the address.
        Query = "query",
        /// As a form.
        FormPost = "form_post",
        /// Behind the `#`.
        Fragment = "fragment",
        /// In the address, signed.
        QueryJwt = "query.jwt",
        /// As a form, signed.
        FormPostJwt = "form_post.jwt",
        /// Behind the `#`, signed.
        FragmentJwt = "fragment.jwt",
        /// As is usual for a code, signed.
        Jwt = "jwt",
    }
}

config! {
    /// Methods, logins and logouts.
    pub(crate) struct LoginFields {
        /// The methods by which requests show who they come from.
        #[field(default(ON_BY_DEFAULT.map(Method::name)))]
        pub(crate) auth_methods: Set<Method>,
        /// The methods to which `login_action` applies.
        #[field(default(json!([Method::AuthorizationCode.name()])))]
        pub(crate) login_methods: Set<Method>,
        /// The tokens that users get where `login_action` is not `upstream`.
        #[field(default(json!([LoginToken::IdToken.word()])))]
        pub(crate) login_tokens: Set<LoginToken>,
        /// What follows a login: the request goes on, the tokens are the answer, or the
        /// browser is sent on.
        #[field(default(Action::Upstream.word()))]
        pub(crate) login_action: Action,
        /// The part of the address in which a redirect has the tokens.
        #[field(default(RedirectMode::Fragment.word()))]
        pub(crate) login_redirect_mode: RedirectMode,
        /// The methods of requests that may ask for a logout.
        #[field(default(json!([LogoutMethod::Post.word(), LogoutMethod::Delete.word()])))]
        pub(crate) logout_methods: Set<LogoutMethod>,
        /// Whether a logout revokes tokens at the provider.
        #[field(default(false))]
        pub(crate) logout_revoke: bool,
        /// How the provider's answer to a login comes back.
        #[field(default(Mode::Query.word()))]
        pub(crate) response_mode: Option<Mode>,
    }
}

config! {
    /// What clients are told of refusals.
    pub(crate) struct RefusalFields {
        /// The message of an answer 403.
        #[field(default("Forbidden"))]
        pub(crate) forbidden_error_message: AnyText,
        /// The message of an answer 401.
        #[field(default("Unauthorized"))]
        pub(crate) unauthorized_error_message: AnyText,
        /// Whether an answer 403 ends the session.
        #[field(default(true))]
        pub(crate) forbidden_destroy_session: bool,
    }
}

config! {
    /// What clients get to see: redirects, messages, log-out triggers.
    pub(crate) struct ResponseFields {
        /// Where browsers go after a login, one a client, if `login_action` is `redirect`.
        pub(crate) login_redirect_uri: Vec<Address>,
        /// Where browsers go after a logout, one a client.
        pub(crate) logout_redirect_uri: Vec<Address>,
        /// Where browsers go instead of an answer 401, one a client.
        pub(crate) unauthorized_redirect_uri: Vec<Address>,
        /// Where browsers go instead of an answer 403, one a client.
        pub(crate) forbidden_redirect_uri: Vec<Address>,
        /// Where browsers go instead of an answer 500, one a client.
        pub(crate) unexpected_redirect_uri: Vec<Address>,
        /// Whether the query of the request that wanted a login goes on to
        /// `login_redirect_uri`.
        #[field(default(false))]
        pub(crate) preserve_query_args: bool,
        /// The bytes of a form that is sent again after a login. 0: none is.
        #[field(default(0))]
        pub(crate) preserve_request_body: Bounded<0, 65_536>,
        /// Whether scripts get an answer 401 in the place of a redirect to the provider.
        #[field(default(false))]
        pub(crate) scripts_unauthorized: bool,
        /// The origins whose scripts may read these answers. None: any.
        pub(crate) scripts_origins: Texts,
        /// The query parameter that asks for a logout.
        pub(crate) logout_query_arg: Option<AnyText>,
        /// The form parameter that asks for a logout.
        pub(crate) logout_post_arg: Option<AnyText>,
        /// The end of paths that ask for a logout.
        pub(crate) logout_uri_suffix: Option<AnyText>,
        /// The end of paths at which the provider itself asks for logouts.
        pub(crate) backchannel_logout_uri_suffix: Option<AnyText>,
        /// The end of paths at which the provider asks for logouts in a frame of the browser.
        pub(crate) frontchannel_logout_uri_suffix: Option<AnyText>,
        /// Whether a logout in a frame must name its session.
        #[field(default(false))]
        pub(crate) frontchannel_logout_session_required: bool,
        /// Whether `logout_revoke` is about access tokens.
        #[field(default(true))]
        pub(crate) logout_revoke_access_token: bool,
        /// Whether `logout_revoke` is about refresh tokens.
        #[field(default(true))]
        pub(crate) logout_revoke_refresh_token: bool,
        /// Whether an answer 401 ends the session.
        #[field(default(true))]
        pub(crate) unauthorized_destroy_session: bool,
        /// Whether clients are told the code of a refusal, and what the provider said.
        #[field(default(false))]
        pub(crate) display_errors: bool,
        /// Whether challenges name an error.
        #[field(default(true))]
        pub(crate) expose_error_code: bool,
    }
}
