//! What the filters would do with a request.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pingora::http::RequestHeader;

use super::answer::{Explanation, FilterAnswer};
use doorward_plugin_api::filter::{Exchange, Filter, FilterExplanation};

/// A request that has reached its filters.
pub(super) struct Ahead {
    pub(super) request: RequestHeader,
    pub(super) client: IpAddr,
    pub(super) secure: bool,
    pub(super) filters: Vec<Arc<dyn Filter>>,
}

/// An explanation without what the filters would do.
pub struct Explained {
    pub(super) explanation: Explanation,
    pub(super) ahead: Option<Ahead>,
}

impl Explained {
    /// What does not depend on what this process has seen, holds and knows.
    pub fn alone(self) -> Explanation {
        self.explanation
    }

    /// With what the filters would do with the request: they are asked in their
    /// order until one answers it. They may ask a provider about its token, as
    /// they would for the request.
    pub async fn explain(self) -> Explanation {
        let Self {
            mut explanation,
            ahead,
        } = self;
        let Some(ahead) = ahead else {
            return explanation;
        };
        let mut exchange = Exchange {
            client: SocketAddr::new(ahead.client, 0),
            secure: ahead.secure,
            ..Exchange::default()
        };
        for (filter, shown) in ahead.filters.iter().zip(&mut explanation.filters) {
            let expected = filter.explain(&ahead.request, &mut exchange).await;
            shown.explanation.clone_from(&expected);
            if let Some(FilterExplanation::Answers {
                status,
                code,
                reason,
            }) = expected
            {
                let filter = shown.name.clone();
                explanation.answered = Some(FilterAnswer {
                    filter,
                    status,
                    code,
                    reason,
                });
                break;
            }
        }
        explanation
    }
}
