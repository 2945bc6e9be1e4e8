//! Filters that authenticate, with the handlers that answer where they fail.

use super::builder::RouteFileBuilder;
use super::fields::Fields;
use super::filters::step;
use super::objects::{Built, Part};
use crate::handler::{Case, Step};

impl RouteFileBuilder<'_> {
    /// A filter that gives credentials, behind what answers where the upstream
    /// does not take them.
    pub(super) fn basic_auth(
        &self,
        type_name: &str,
        declared: &Fields<'_>,
        config: &Fields<'_>,
    ) -> Option<Built> {
        let built = self.filter(type_name, declared, config)?;
        const REFUSED: &str = "${response.status.code == 401}";
        let switch = self.failure_handler(REFUSED, config)?;
        Some(group(switch.into_iter().chain([built])))
    }

    /// A filter that signs users in, behind what answers failed logins, and before
    /// the page from which users without a login begin one.
    pub(super) fn oauth2_client(
        &self,
        type_name: &str,
        declared: &Fields<'_>,
        config: &Fields<'_>,
    ) -> Option<Built> {
        let built = self.filter(type_name, declared, config)?;
        const FAILED: &str = "${contexts.oauth2Failure.error != null}";
        let failure = self.failure_handler(FAILED, config)?;
        let login = match config.value("loginHandler") {
            Some(_) if config.boolean("requireLogin")? != Some(false) => {
                Some(self.login_handler(config)?)
            }
            _ => None,
        };
        Some(group(failure.into_iter().chain([built]).chain(login)))
    }

    fn login_handler(&self, config: &Fields<'_>) -> Option<Built> {
        const SIGNED_OUT: &str = "${contexts.oauth2Info == null}";
        let condition = self.expression(&SIGNED_OUT.into(), &config.at("loginHandler"))?;
        let leads = self.leads_to(config, "loginHandler")?;
        let case = Case {
            condition: Some(condition),
            handler: leads.handler,
        };
        let switch = Step::Switch {
            on_request: [case].into(),
            on_response: Box::default(),
        };
        Some(Built::step(switch, leads.height, leads.weight))
    }

    /// The step by which the `failureHandler` of a filter answers where `condition`
    /// holds of an answer; the inner `None`: there is no such handler.
    fn failure_handler(&self, condition: &str, config: &Fields<'_>) -> Option<Option<Built>> {
        if config.value("failureHandler").is_none() {
            return Some(None);
        }
        let condition = self.expression(&condition.into(), &config.at("failureHandler"))?;
        let leads = self.leads_to(config, "failureHandler")?;
        if !leads.handler.answers() {
            let message = "must answer by itself (StaticResponseHandler): a failed request goes \
                           to no upstream";
            return config.wrong("failureHandler", message);
        }
        let case = Case {
            condition: Some(condition),
            handler: leads.handler,
        };
        let switch = Step::Switch {
            on_request: Box::default(),
            on_response: [case].into(),
        };
        Some(Some(Built::step(switch, leads.height, leads.weight)))
    }
}

/// Filters that are one, in this order.
fn group(parts: impl Iterator<Item = Built>) -> Built {
    let parts: Vec<Built> = parts.collect();
    if let [_] = parts.as_slice() {
        return parts.into_iter().next().unwrap_or_else(Built::passive);
    }
    let height = parts.iter().map(|part| part.height).max().unwrap_or(0) + 1;
    let weight = parts.iter().map(|part| part.weight).sum();
    Built {
        part: Part::Steps(parts.into_iter().map(step).collect()),
        height,
        weight,
    }
}
