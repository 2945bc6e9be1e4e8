//! A browser without scripts: keeps cookies, fills in forms.

use std::collections::BTreeMap;
use std::sync::Mutex;

use reqwest::Method;

use crate::support::http::{client, send};
use crate::support::{Answer, Door};

/// One that has visited nothing yet.
pub(in crate::identity) struct Browser<'d> {
    door: &'d Door,
    cookies: Mutex<BTreeMap<String, String>>,
}

/// A form of a page.
#[derive(Clone, Debug)]
pub(in crate::identity) struct Form {
    pub(in crate::identity) action: String,
    pub(in crate::identity) fields: Vec<(String, String)>,
}

impl Form {
    /// The only form of this page.
    pub(in crate::identity) fn of(page: &Answer) -> Self {
        let html = &page.body;
        let action = between(html, "<form method=\"post\" action=\"", "\"").expect("a form");
        let fields = html.split("<input type=\"hidden\" ").skip(1).map(|input| {
            let name = between(input, "name=\"", "\"").expect("a name");
            (name, between(input, "value=\"", "\"").expect("a value"))
        });
        Self {
            fields: fields.collect(),
            action,
        }
    }

    /// With a field set, or left out for "".
    pub(in crate::identity) fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.retain(|(known, _)| known != name);
        if !value.is_empty() {
            self.fields.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// The value of a field.
    pub(in crate::identity) fn field(&self, name: &str) -> &str {
        let field = self.fields.iter().find(|(known, _)| known == name);
        field.map_or("", |(_, value)| value)
    }
}

/// The text between two others, with character references resolved.
pub(in crate::identity) fn between(text: &str, before: &str, after: &str) -> Option<String> {
    let start = text.find(before)? + before.len();
    let end = text[start..].find(after)? + start;
    let mut text = text[start..end].to_owned();
    for (reference, character) in [
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#60;", "<"),
        ("&#62;", ">"),
        ("&#38;", "&"),
    ] {
        text = text.replace(reference, character);
    }
    Some(text)
}

/// The error code that a page shows, or "".
pub(in crate::identity) fn shown_error(page: &Answer) -> String {
    between(&page.body, "id=\"doorward-error\">", "<").unwrap_or_default()
}

impl<'d> Browser<'d> {
    pub(in crate::identity) fn new(door: &'d Door) -> Self {
        Self {
            door,
            cookies: Mutex::default(),
        }
    }

    pub(in crate::identity) fn cookie(&self, name: &str) -> Option<String> {
        self.cookies
            .lock()
            .expect("not poisoned")
            .get(name)
            .cloned()
    }

    pub(in crate::identity) fn set_cookie(&self, name: &str, value: &str) {
        let mut cookies = self.cookies.lock().expect("not poisoned");
        cookies.insert(name.to_owned(), value.to_owned());
    }

    /// GET of a path, or of an address of the provider.
    pub(in crate::identity) async fn get(&self, address: &str) -> Answer {
        self.request(Method::GET, address, &[], &[]).await
    }

    /// Posts a form.
    pub(in crate::identity) async fn post(&self, form: &Form) -> Answer {
        self.post_with(form, &[]).await
    }

    /// Posts a form, with header fields.
    pub(in crate::identity) async fn post_with(
        &self,
        form: &Form,
        headers: &[(&str, &str)],
    ) -> Answer {
        self.request(Method::POST, &form.action, &form.fields, headers)
            .await
    }

    async fn request(
        &self,
        method: Method,
        address: &str,
        fields: &[(String, String)],
        headers: &[(&str, &str)],
    ) -> Answer {
        let url = if address.starts_with('/') {
            self.door.proxy_url(address)
        } else {
            address.to_owned()
        };
        let mut request = client().request(method.clone(), url);
        let cookies: Vec<_> = {
            let cookies = self.cookies.lock().expect("not poisoned");
            cookies.iter().map(|(n, v)| format!("{n}={v}")).collect()
        };
        if !cookies.is_empty() {
            request = request.header("cookie", cookies.join("; "));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if method == Method::POST {
            request = request.form(fields);
        }
        let answer = send(request).await;
        for cookie in answer.headers.get_all("set-cookie") {
            let cookie = cookie.to_str().expect("text");
            let (pair, attributes) = cookie.split_once(';').expect("attributes");
            assert!(attributes.contains("HttpOnly"), "{cookie}");
            assert!(attributes.contains("SameSite=Lax"), "{cookie}");
            let (name, value) = pair.split_once('=').expect("a pair");
            let mut cookies = self.cookies.lock().expect("not poisoned");
            if attributes.contains("Max-Age=0") {
                cookies.remove(name)
            } else {
                cookies.insert(name.to_owned(), value.to_owned())
            };
        }
        answer
    }

    /// Signs in at this page and gives what follows.
    pub(in crate::identity) async fn sign_in(&self, page: &Answer, user: &str) -> Answer {
        let form = Form::of(page)
            .with("username", user)
            .with("password", &format!("Ch4ng31t-{user}"));
        let next = self.post(&form).await.expect(303);
        self.get(next.header("location")).await
    }

    /// Agrees at this page; gives the redirect.
    pub(in crate::identity) async fn approve(&self, page: &Answer) -> Answer {
        self.post(&Form::of(page).with("approve", "true")).await
    }
}
