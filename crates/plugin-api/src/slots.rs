//! Components that the filters of one kind share.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

type Components = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// Components by their type, one of each: the providers of `openid-connect`, the
/// registry of the token broker. All clones share them. They are looked up when a
/// filter is built, never for a request.
#[derive(Clone, Default)]
pub struct Slots(Arc<Mutex<Components>>);

impl Slots {
    /// The component of this type, if one was put there.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let component = self.0.lock().get(&TypeId::of::<T>()).cloned()?;
        component.downcast().ok()
    }

    /// The component of this type; its default is put there if there is none.
    pub fn get_or_default<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let mut components = self.0.lock();
        let component = components
            .entry(TypeId::of::<T>())
            .or_insert_with(|| Arc::new(T::default()));
        // Components are stored under the type that they have.
        Arc::clone(component).downcast().unwrap_or_default()
    }

    /// A set of its own with the same components: what is put there later is
    /// not in this one.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self(Arc::new(Mutex::new(self.0.lock().clone())))
    }

    /// Puts `component` in the place of the one of its type.
    pub fn put<T: Any + Send + Sync>(&self, component: Arc<T>) {
        self.0.lock().insert(TypeId::of::<T>(), component);
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slots").field(&self.0.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_one_component_of_each_type() {
        let slots = Slots::default();
        assert!(slots.get::<String>().is_none());
        let first = slots.get_or_default::<Mutex<u8>>();
        *first.lock() = 7;
        assert_eq!(*slots.clone().get_or_default::<Mutex<u8>>().lock(), 7);
        slots.clone().put(Arc::new("registry".to_owned()));
        assert_eq!(
            slots.get::<String>().as_deref(),
            Some(&"registry".to_owned())
        );
        let copy = slots.copy();
        copy.put(Arc::new("another".to_owned()));
        assert_eq!(
            slots.get::<String>().as_deref(),
            Some(&"registry".to_owned())
        );
    }
}
