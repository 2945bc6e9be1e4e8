//! Applications as requests see them: compiled with their products.

use std::sync::Arc;

use super::path_pattern::PathPattern;
use crate::throttling::quota::Quota;
use doorward_core::model::broker::{
    Application, ApplicationStatus, Developer, DeveloperStatus, Product, StoredTokens,
};
use doorward_core::model::client::ClientSecret;

/// An application, ready for requests.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) application: Application,
    pub(super) developer: Option<Developer>,
    pub(super) secret: ClientSecret,
    pub(super) created_ms: i64,
    /// Those of its products that there are, in its order.
    pub(super) products: Vec<LiveProduct>,
}

/// A product, compiled.
#[derive(Debug)]
pub(super) struct LiveProduct {
    pub(super) product: Product,
    resources: Vec<PathPattern>,
    /// What its applications may ask of it.
    pub(super) quota: Option<Arc<Quota>>,
}

/// Where a request goes, for the question which product covers it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) proxy: &'a str,
    pub(super) environment: &'a str,
}

/// Why no product covers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Uncovered {
    /// None of the application's products exists.
    NoProduct,
    /// None is for this proxy and environment.
    Elsewhere,
    /// None has this path.
    Path,
}

impl LiveProduct {
    pub(super) fn new(product: Product, quota: Option<Arc<Quota>>) -> Self {
        let patterns = product.api_resources.iter();
        // They were compiled before they were stored.
        let resources = patterns.filter_map(|text| PathPattern::compile(text).ok());
        Self {
            resources: resources.collect(),
            product,
            quota,
        }
    }

    fn is_for(&self, place: Place<'_>) -> bool {
        let has = |list: &[String], name: &str| list.is_empty() || list.iter().any(|n| n == name);
        has(&self.product.proxies, place.proxy)
            && has(&self.product.environments, place.environment)
    }

    fn has(&self, suffix: &str) -> bool {
        self.product.api_resources.is_empty()
            || self.resources.iter().any(|pattern| pattern.matches(suffix))
    }
}

impl Client {
    /// Whether application and developer are served.
    pub(super) fn is_approved(&self) -> bool {
        let active = |developer: &Developer| developer.status == DeveloperStatus::Active;
        self.application.status == ApplicationStatus::Approved
            && self.developer.as_ref().is_some_and(active)
    }

    /// Whether it knows the secret, if it has one here.
    pub(super) fn is_shown_by(&self, secret: Option<&str>) -> bool {
        match (&self.secret, secret) {
            (ClientSecret::None, _) => true,
            (kept, Some(secret)) => kept.matches(secret),
            (_, None) => false,
        }
    }

    /// Whether tokens were given to this very application, and not revoked with
    /// all others.
    pub(super) fn gave(&self, tokens: &StoredTokens) -> bool {
        let facts = &tokens.facts;
        // What was revoked is not escaped by a refresh at the same moment.
        let begun_ms = tokens.begun_ms();
        facts.application == self.application.id
            && begun_ms >= self.created_ms
            && begun_ms > self.application.tokens_revoked_ms
    }

    /// Whether a product of it has this scope. One that none has any more is
    /// gone from tokens that were given with it.
    pub(super) fn has_scope(&self, scope: &str) -> bool {
        let mut all = self.products.iter().flat_map(|one| &one.product.scopes);
        all.any(|one| one == scope)
    }

    /// Whether a product is for this place at all.
    pub(super) fn is_for(&self, place: Place<'_>) -> bool {
        self.products.iter().any(|product| product.is_for(place))
    }

    /// The first product that covers the path `suffix`.
    pub(super) fn covering(
        &self,
        place: Place<'_>,
        suffix: &str,
    ) -> Result<&LiveProduct, Uncovered> {
        if self.products.is_empty() && !self.application.products.is_empty() {
            return Err(Uncovered::NoProduct);
        }
        let mut missing = Uncovered::Elsewhere;
        for product in self.products.iter().filter(|one| one.is_for(place)) {
            if product.has(suffix) {
                return Ok(product);
            }
            missing = Uncovered::Path;
        }
        Err(missing)
    }

    /// The scopes of a token that `requested` ones are asked for: those that a
    /// product has; all of them where none is asked for. `None`: some are asked
    /// for, products have some, and none is both.
    pub(super) fn scopes(&self, requested: &str) -> Option<Vec<String>> {
        let mut all: Vec<&str> = Vec::new();
        for scope in self.products.iter().flat_map(|one| &one.product.scopes) {
            if !all.contains(&scope.as_str()) {
                all.push(scope);
            }
        }
        if all.is_empty() || requested.trim().is_empty() {
            return Some(all.into_iter().map(str::to_owned).collect());
        }
        let mut granted: Vec<String> = Vec::new();
        for scope in requested.split_ascii_whitespace() {
            if all.contains(&scope) && !granted.iter().any(|one| one == scope) {
                granted.push(scope.to_owned());
            }
        }
        (!granted.is_empty()).then_some(granted)
    }
}
