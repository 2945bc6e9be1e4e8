//! The attributes that records may have (interface 2.1, RFC 7643 §4).

use super::schema::{Attribute, Schema, Type};

/// The URN of users (RFC 7643 §4.1).
pub const USER_URN: &str = "urn:ietf:params:scim:schemas:core:2.0:User";
/// The URN of groups (RFC 7643 §4.2).
pub const GROUP_URN: &str = "urn:ietf:params:scim:schemas:core:2.0:Group";
/// The URN of what companies say of users besides (RFC 7643 §4.3).
pub const ENTERPRISE_URN: &str = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";
/// The path below which attributes of [`ENTERPRISE_URN`] are kept and indexed.
pub const ENTERPRISE: &str = "enterprise";

const fn text(path: &'static str, about: &'static str) -> Attribute {
    of(path, Type::Text, about)
}

const fn of(path: &'static str, kind: Type, about: &'static str) -> Attribute {
    Attribute {
        path,
        kind,
        read_only: false,
        about,
    }
}

const fn fixed(path: &'static str, kind: Type, about: &'static str) -> Attribute {
    Attribute {
        path,
        kind,
        read_only: true,
        about,
    }
}

/// Users.
pub static USER: Schema = Schema {
    urn: USER_URN,
    attributes: USER_ATTRIBUTES,
};

/// Groups.
pub static GROUP: Schema = Schema {
    urn: GROUP_URN,
    attributes: GROUP_ATTRIBUTES,
};

/// Sub-attributes come after their parent.
#[rustfmt::skip]
static USER_ATTRIBUTES: &[Attribute] = &[
    fixed("id", Type::Exact, "Identifier, never given again."),
    of("externalId", Type::Exact, "Identifier that the provisioning client uses."),
    text("userName", "Name to sign in with, unique whatever its case."),
    text("accountStatus", "Whether the user may sign in: Active or Deactivated."),
    of("active", Type::Boolean, "Whether the user may sign in."),
    text("displayName", "Name that people are shown."),
    text("nickName", "Casual name."),
    text("profileUrl", "Address of an online profile."),
    of("website", Type::Exact, "Address of the user's own pages."),
    text("gender", "Gender, as the user calls it."),
    of("birthdate", Type::Exact, "Day of birth: YYYY-MM-DD, 0000 for a year that is not told, or the year alone."),
    text("title", "Title, such as Vice President."),
    text("userType", "Relationship to the organization, such as Employee."),
    text("preferredLanguage", "Preferred language, as in Accept-Language."),
    text("locale", "Default language and location (RFC 5646)."),
    text("timezone", "Time zone, as Area/Location (RFC 6557)."),
    of("name", Type::Complex, "Parts of the real name."),
    text("name.formatted", "The whole name."),
    text("name.familyName", "Surname."),
    text("name.givenName", "Given name."),
    text("name.middleName", "Middle names."),
    text("name.honorificPrefix", "Such as Ms. or Dr."),
    text("name.honorificSuffix", "Such as Jr. or III."),
    of("addresses", Type::ComplexMany, "Postal addresses."),
    text("addresses.type", "Such as home or work."),
    text("addresses.streetAddress", "Street and number."),
    text("addresses.locality", "Town or city."),
    text("addresses.region", "State or province."),
    text("addresses.postalCode", "Postal code."),
    text("addresses.country", "Country."),
    fixed("addresses.formatted", Type::Text, "The address on one line, made of its parts."),
    of("addresses.primary", Type::Boolean, "Whether it is the main one."),
    of("emails", Type::ComplexMany, "E-mail addresses."),
    text("emails.value", "The address."),
    text("emails.type", "Such as home or work."),
    text("emails.display", "How it is shown."),
    of("emails.primary", Type::Boolean, "Whether it is the main one."),
    of("emails.verified", Type::Boolean, "Whether it is known to be the user's."),
    of("phoneNumbers", Type::ComplexMany, "Telephone numbers."),
    text("phoneNumbers.value", "The number."),
    text("phoneNumbers.type", "Such as home, work or mobile."),
    text("phoneNumbers.display", "How it is shown."),
    of("phoneNumbers.primary", Type::Boolean, "Whether it is the main one."),
    of("ims", Type::ComplexMany, "Instant messaging addresses."),
    text("ims.value", "The address."),
    text("ims.type", "The service."),
    text("ims.display", "How it is shown."),
    of("ims.primary", Type::Boolean, "Whether it is the main one."),
    of("photos", Type::ComplexMany, "Pictures of the user."),
    of("photos.value", Type::Exact, "Address of the picture."),
    text("photos.type", "Such as photo or thumbnail."),
    text("photos.display", "How it is called."),
    of("photos.primary", Type::Boolean, "Whether it is the main one."),
    of("entitlements", Type::ComplexMany, "Things that the user is entitled to."),
    text("entitlements.value", "The entitlement."),
    text("entitlements.type", "Its kind."),
    text("entitlements.display", "How it is shown."),
    of("entitlements.primary", Type::Boolean, "Whether it is the main one."),
    of("roles", Type::ComplexMany, "Roles of the user."),
    text("roles.value", "The role."),
    text("roles.type", "Its kind."),
    text("roles.display", "How it is shown."),
    of("roles.primary", Type::Boolean, "Whether it is the main one."),
    of("x509Certificates", Type::ComplexMany, "Certificates of the user."),
    of("x509Certificates.value", Type::Exact, "The certificate, in DER and Base64."),
    text("x509Certificates.type", "Its kind."),
    text("x509Certificates.display", "How it is called."),
    of("x509Certificates.primary", Type::Boolean, "Whether it is the main one."),
    fixed("groups", Type::ComplexMany, "Groups that the user is a member of."),
    fixed("groups.value", Type::Exact, "Identifier of the group."),
    fixed("groups.$ref", Type::Exact, "Address of the group."),
    fixed("groups.display", Type::Text, "Name of the group."),
    fixed("groups.type", Type::Text, "How the user is a member: direct."),
    of("preferences", Type::Free, "What applications note of the user."),
    of(ENTERPRISE, Type::Complex, "What companies say of users."),
    text("enterprise.employeeNumber", "Number that the organization gave."),
    text("enterprise.costCenter", "Cost center."),
    text("enterprise.organization", "Organization."),
    text("enterprise.division", "Division."),
    text("enterprise.department", "Department."),
    of("enterprise.manager", Type::Complex, "Who manages the user."),
    of("enterprise.manager.value", Type::Exact, "Identifier of the manager."),
    of("enterprise.manager.$ref", Type::Exact, "Address of the manager's record."),
    text("enterprise.manager.displayName", "Name of the manager."),
    fixed("meta", Type::Complex, "What is known of the record."),
    fixed("meta.resourceType", Type::Exact, "Kind of the record."),
    fixed("meta.created", Type::Instant, "When it was made."),
    fixed("meta.lastModified", Type::Instant, "When it was changed last."),
    fixed("meta.location", Type::Exact, "Its address."),
    fixed("meta.version", Type::Exact, "Its entity tag."),
    fixed("schemas", Type::Exact, "Schemas that the record obeys."),
];

#[rustfmt::skip]
static GROUP_ATTRIBUTES: &[Attribute] = &[
    fixed("id", Type::Exact, "Identifier, never given again."),
    of("externalId", Type::Exact, "Identifier that the provisioning client uses."),
    text("displayName", "Name of the group, unique whatever its case; what tokens tell."),
    of("members", Type::ComplexMany, "Users in the group."),
    of("members.value", Type::Exact, "Identifier of the user."),
    fixed("members.$ref", Type::Exact, "Address of the user's record."),
    fixed("members.display", Type::Text, "Name of the user."),
    of("members.type", Type::Text, "Kind of the member: User."),
    fixed("meta", Type::Complex, "What is known of the record."),
    fixed("meta.resourceType", Type::Exact, "Kind of the record."),
    fixed("meta.created", Type::Instant, "When it was made."),
    fixed("meta.lastModified", Type::Instant, "When it was changed last."),
    fixed("meta.location", Type::Exact, "Its address."),
    fixed("meta.version", Type::Exact, "Its entity tag."),
    fixed("schemas", Type::Exact, "Schemas that the record obeys."),
];
