//! Run-time expressions `${…}`: compiled once, evaluated per request.
