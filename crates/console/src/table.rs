//! Tables: what most pages consist of.

use super::visit::Visit;

/// How a cell looks; beside its text, never instead of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mark {
    #[default]
    Plain,
    Code,
    Good,
    Warning,
    Bad,
    Muted,
}

impl Mark {
    /// The class of the style sheet.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Code => "code",
            Self::Good => "good",
            Self::Warning => "warn",
            Self::Bad => "bad",
            Self::Muted => "muted",
        }
    }
}

/// A cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) mark: Mark,
    /// A page of the console.
    pub(crate) address: Option<String>,
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    pub(crate) fn code(text: impl Into<String>) -> Self {
        Self::new(text).marked(Mark::Code)
    }

    pub(crate) fn marked(self, mark: Mark) -> Self {
        Self { mark, ..self }
    }

    pub(crate) fn to(self, address: impl Into<String>) -> Self {
        Self {
            address: Some(address.into()),
            ..self
        }
    }
}

/// A button of a row, which posts a form.
#[derive(Clone, Debug)]
pub(crate) struct Button {
    pub(crate) text: String,
    /// Says which row it is of.
    pub(crate) label: String,
    pub(crate) address: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) danger: bool,
}

/// A row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) cells: Vec<Cell>,
    pub(crate) buttons: Vec<Button>,
}

impl Row {
    pub(crate) fn new(cells: Vec<Cell>) -> Self {
        Self {
            cells,
            buttons: Vec::new(),
        }
    }
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// Names it for those who do not see it; shown above it where a page has several.
    pub(crate) caption: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Row>,
    /// What is said if there are no rows.
    pub(crate) empty: &'static str,
    /// Where more of it is.
    pub(crate) next: Option<String>,
    /// What can be done beside it: text and page.
    pub(crate) links: Vec<(String, String)>,
    /// What a script knows it by.
    pub(crate) id: &'static str,
}

impl Table {
    /// Whether a row has buttons.
    pub(crate) fn has_buttons(&self) -> bool {
        self.rows.iter().any(|row| !row.buttons.is_empty())
    }
}

/// A field of a form that narrows a list down.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) value: String,
    pub(crate) hint: &'static str,
}

impl Filter {
    /// The filter `name`, as `visit` has set it.
    pub(crate) fn of(
        visit: &Visit,
        name: &'static str,
        label: &'static str,
        hint: &'static str,
    ) -> Self {
        Self {
            name,
            label,
            value: visit.query(name).to_owned(),
            hint,
        }
    }
}
