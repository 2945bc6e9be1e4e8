//! Names in an expression: roots, members and indexes.

use http::HeaderName;

use super::Fault;
use super::compile::{Compiler, names};
use super::context::{Object, ROOTS};
use super::message::CookiePart;
use super::node::{CookieAt, Node};
use super::parse::Ast;
use super::slot::Slot;
use super::value::Value;
use doorward_core::model::suggestion;

/// Members of a cookie.
const COOKIE: &[(&str, CookiePart)] = &[
    ("value", CookiePart::Value),
    ("domain", CookiePart::Attribute("domain")),
    ("expires", CookiePart::Attribute("expires")),
    ("maxAge", CookiePart::Attribute("max-age")),
    ("path", CookiePart::Attribute("path")),
    ("sameSite", CookiePart::Attribute("samesite")),
    ("httpOnly", CookiePart::Flag("httponly")),
    ("secure", CookiePart::Flag("secure")),
];

impl Compiler<'_> {
    pub(super) fn root(&mut self, at: usize, name: &str) -> Result<Node, Fault> {
        if let Some((_, member)) = ROOTS.iter().find(|(root, _)| *root == name) {
            return self.part(at, *member);
        }
        if let Some(value) = self.constants.get(name) {
            let value = Value::of_owned_json(value.clone());
            return Ok(Node::Constant(value));
        }
        let roots = ROOTS.iter().map(|(root, _)| *root);
        let known = || roots.clone().chain(self.constants.names());
        let advice = match suggestion::nearest(name, known()) {
            Some(near) => format!("; did you mean `{near}`?"),
            None => format!(": an expression begins with {}", names(known())),
        };
        let message = format!("there is no `{name}`{advice}");
        if self.constants.is_lenient() {
            self.unknown.push(message);
            // No constant: what looks at it is not taken for a mistake of its own.
            return Ok(Node::Slot(Slot::Absent));
        }
        Err(Fault::new(at, message))
    }

    /// `of.name`, the same as `of['name']` where the request names the members.
    pub(super) fn member(&mut self, at: usize, of: Node, name: String) -> Result<Node, Fault> {
        match (of, name.as_str()) {
            (of @ (Node::Header(..) | Node::Field(..)), "values") => Ok(of),
            (Node::Header(side, header), "firstValue") => Ok(Node::HeaderAt(side, header, 0)),
            (of @ Node::Slot(Slot::Transaction), "value") => Ok(of),
            (Node::Cookie(cookie), name) if cookie.part == CookiePart::All => {
                cookie_member(at, &cookie, name)
            }
            // Of a cookie whose name is only known with the request.
            (of, "value") if is_cookie(&of) => Ok(of),
            (of, name) if is_cookie(&of) => {
                let message = format!(
                    "of a cookie whose name is not constant there is `value`, not `{name}`"
                );
                Err(Fault::new(at, message))
            }
            (of, _) => self.at_name(at, of, name),
        }
    }

    pub(super) fn index(&mut self, of: Ast, key: Ast) -> Result<Node, Fault> {
        let (of, key_at) = (self.node(of)?, key.at);
        let key = self.node(key)?;
        let position = match &key {
            Node::Constant(value) => value.as_index(),
            _ => None,
        };
        match (of, key, position) {
            (Node::Header(side, name), _, Some(i)) => Ok(Node::HeaderAt(side, name, i)),
            (Node::Field(from, name), _, Some(i)) => Ok(Node::FieldAt(from, name, i)),
            (Node::Cookies(side, name), _, Some(index)) => {
                let part = CookiePart::All;
                let cookie = CookieAt {
                    side,
                    name,
                    index,
                    part,
                };
                Ok(Node::Cookie(Box::new(cookie)))
            }
            // A client shows one certificate of its own.
            (Node::Object(Object::Certificates), _, Some(0)) => {
                Ok(Node::Object(Object::Certificate))
            }
            (Node::Object(Object::Certificates), _, Some(_)) => Ok(Node::Slot(Slot::Absent)),
            (of, Node::Constant(Value::Text(name)), _) => {
                self.at_name(key_at, of, name.into_owned())
            }
            (Node::Cookies(..), ..) => Err(Fault::new(key_at, "this index must be a constant")),
            (Node::Object(object), key, _) => {
                let by_request = matches!(
                    object,
                    Object::Headers(_) | Object::Fields(_) | Object::OpenId | Object::Cookies(_)
                );
                if !by_request || matches!(key, Node::Constant(_)) {
                    return Err(Fault::new(key_at, "this index must be a constant name"));
                }
                Ok(Node::Index(Box::new(Node::Object(object)), Box::new(key)))
            }
            (of, key, _) => {
                has_members(key_at, &of)?;
                Ok(Node::Index(Box::new(of), Box::new(key)))
            }
        }
    }

    /// The member with a name known at load.
    fn at_name(&mut self, at: usize, of: Node, name: String) -> Result<Node, Fault> {
        let object = match of {
            Node::Object(object) => object,
            Node::Slot(Slot::Claims) => return Ok(Node::Claim(name)),
            of => {
                has_members(at, &of)?;
                let key = Node::Constant(Value::owned_text(name));
                return Ok(Node::Index(Box::new(of), Box::new(key)));
            }
        };
        if let Some(member) = object.member(&name) {
            return self.part(at, member);
        }
        match object {
            Object::Headers(side) => HeaderName::try_from(&name)
                .map(|name| Node::Header(side, name))
                .map_err(|_| Fault::new(at, format!("{name:?} can't be the name of a header"))),
            Object::Cookies(side) => Ok(Node::Cookies(side, name)),
            Object::Fields(from) => Ok(Node::Field(from, name)),
            Object::OpenId => Ok(Node::Claim(name)),
            // An AssignmentFilter may have set it.
            Object::Attributes if self.constants.is_lenient() => {
                let key = Node::Constant(Value::owned_text(name));
                Ok(Node::Index(Box::new(Node::Object(object)), Box::new(key)))
            }
            Object::Env => Ok(Node::Constant(
                std::env::var(&name).map_or(Value::Null, Value::owned_text),
            )),
            Object::System => Ok(Node::Constant(
                system(&name).map_or(Value::Null, Value::owned_text),
            )),
            _ => Err(no_member(at, object, &name)),
        }
    }
}

/// Whether it is one of the cookies of a name that is not constant.
fn is_cookie(node: &Node) -> bool {
    let Node::Index(cookies, _) = node else {
        return false;
    };
    matches!(&**cookies, Node::Index(all, _) if matches!(**all, Node::Object(Object::Cookies(_))))
}

fn no_member(at: usize, object: Object, name: &str) -> Fault {
    let known = object.names();
    let near = suggestion::nearest(name, known.iter().copied());
    let advice = match (object.refusal(name), near) {
        (Some(reason), None) => reason,
        // Known, however near another name is.
        (Some(reason), Some(_)) if object == Object::Contexts => reason,
        (_, Some(near)) => format!("there is no member `{name}` here; did you mean `{near}`?"),
        (None, None) => format!(
            "there is no member `{name}` here, only {}",
            names(known.into_iter())
        ),
    };
    Fault::new(at, advice)
}

fn cookie_member(at: usize, cookie: &CookieAt, name: &str) -> Result<Node, Fault> {
    if name == "name" {
        return Ok(Node::Constant(Value::owned_text(cookie.name.clone())));
    }
    let Some((_, part)) = COOKIE.iter().find(|(known, _)| *known == name) else {
        let known = COOKIE.iter().map(|(known, _)| *known);
        let message = format!(
            "a cookie has no member `{name}`, only `name`, {}",
            names(known)
        );
        return Err(Fault::new(at, message));
    };
    let cookie = CookieAt {
        part: *part,
        ..cookie.clone()
    };
    Ok(Node::Cookie(Box::new(cookie)))
}

/// What the imitated gateway's platform says of itself, as far as this process
/// has it.
fn system(name: &str) -> Option<String> {
    let path = |path: std::path::PathBuf| path.into_os_string().into_string().ok();
    match name {
        "user.home" => std::env::var("HOME").ok(),
        "user.name" => std::env::var("USER").ok(),
        "user.dir" => path(std::env::current_dir().ok()?),
        "java.io.tmpdir" => path(std::env::temp_dir()),
        "os.name" => Some(std::env::consts::OS.to_owned()),
        "os.arch" => Some(std::env::consts::ARCH.to_owned()),
        "file.separator" => Some("/".to_owned()),
        "path.separator" => Some(":".to_owned()),
        "line.separator" => Some("\n".to_owned()),
        _ => None,
    }
}

/// Refuses a member or an index of what never has any.
fn has_members(at: usize, of: &Node) -> Result<(), Fault> {
    let what = match of {
        Node::Slot(slot) => slot.plain(),
        Node::HeaderAt(..) | Node::FieldAt(..) => Some("a text"),
        Node::Cookie(cookie) if cookie.part != CookiePart::All => Some("a text"),
        Node::Constant(Value::Text(_)) => Some("a text"),
        Node::Constant(Value::Integer(_) | Value::Float(_)) => Some("a number"),
        Node::Constant(Value::Bool(_)) => Some("true or false"),
        _ => None,
    };
    match what {
        Some(what) => Err(Fault::new(at, format!("{what} has no members"))),
        None => Ok(()),
    }
}
