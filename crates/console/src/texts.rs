//! What the pages say, in both languages. Names of entities, fields, headers and
//! codes stay as they are written in files and requests.

use http::HeaderMap;
use http::header::ACCEPT_LANGUAGE;

use doorward_net::http::quality::weight;
use doorward_net::session::cookie;

/// The cookie of the language.
pub(crate) const COOKIE: &str = "doorward_console_language";

/// Every text in English and in German: one that lacks a language does not compile.
macro_rules! texts {
    ($($name:ident: $english:literal, $german:literal;)*) => {
        /// The texts of one language.
        pub(crate) struct Texts {
            /// Its tag (BCP 47).
            pub(crate) lang: &'static str,
            $(pub(crate) $name: &'static str,)*
        }

        static ENGLISH: Texts = Texts { lang: "en", $($name: $english,)* };
        static GERMAN: Texts = Texts { lang: "de", $($name: $german,)* };
    };
}

texts! {
    language: "English", "Deutsch";
    console: "Console", "Konsole";
    skip: "To the content", "Zum Inhalt";
    navigation: "Pages", "Seiten";
    nav_traffic: "Traffic", "Verkehr";
    nav_gateway: "Gateway", "Gateway";
    nav_identity: "Identity", "Identität";
    nav_system: "System", "System";
    nav_broker: "Token broker", "Token-Broker";
    products: "Products", "Produkte";
    developers: "Developers", "Entwickler";
    applications: "Applications", "Anwendungen";
    broker_lead: "What the file declares and what was made over the Admin API.", "Was die Datei deklariert und was über die Admin-API angelegt wurde.";
    revoke_tokens: "Revoke all tokens", "Alle Tokens widerrufen";
    conflict: "Somebody has changed this record since you began. Nothing of yours is lost: below is what your change makes of the record as it is now.", "Jemand hat diesen Eintrag geändert, seit Sie begonnen haben. Von Ihrer Änderung ging nichts verloren: Unten steht, was sie aus dem jetzigen Eintrag macht.";
    conflict_theirs: "What has changed meanwhile", "Was sich inzwischen geändert hat";
    conflict_base: "When you began", "Als Sie begannen";
    conflict_now: "Now", "Jetzt";
    conflict_mine: "Your change", "Ihre Änderung";
    conflict_both: "changed by both", "von beiden geändert";
    new_product: "New product", "Neues Produkt";
    new_developer: "New developer", "Neuer Entwickler";
    new_application: "New application", "Neue Anwendung";
    application_comes_back: "The audit log can make the application anew for an hour, with a new key and secret and without its tokens.", "Das Audit-Log kann die Anwendung eine Stunde lang neu anlegen, mit neuem Schlüssel und Geheimnis und ohne ihre Tokens.";
    sign_ins: "Passwords accepted", "Akzeptierte Passwörter";
    sign_ins_failed: "Passwords refused", "Abgelehnte Passwörter";
    in_use: "in use", "in Gebrauch";
    down: "does not answer", "antwortet nicht";
    throttled: "Throttled partitions", "Gedrosselte Partitionen";
    no_throttled: "Nothing has been throttled yet.", "Noch wurde nichts gedrosselt.";
    filter_of: "Filter", "Filter";
    configuration_warnings: "Warnings of the configuration", "Warnungen der Konfiguration";
    place_of: "Place", "Stelle";
    message: "Message", "Meldung";
    export: "Export", "Exportieren";
    overview: "Overview", "Überblick";
    refusals: "Refusals", "Ablehnungen";
    explain: "Explain", "Erklären";
    throttling: "Throttling", "Drosselung";
    route_files: "Route files", "Routendateien";
    route_file: "Route file", "Routendatei";
    services: "Services", "Services";
    service: "Service", "Service";
    routes: "Routes", "Routen";
    route: "Route", "Route";
    plugins: "Plugins", "Plugins";
    plugin: "Plugin", "Plugin";
    consumers: "Consumers", "Consumer";
    consumer: "Consumer", "Consumer";
    consumer_hint: "name or id", "Name oder Kennung";
    upstreams: "Upstreams", "Upstreams";
    upstream: "Upstream", "Upstream";
    targets: "Targets", "Ziele";
    target: "Target", "Ziel";
    certificates: "Certificates", "Zertifikate";
    certificate: "Certificate", "Zertifikat";
    snis: "Server names", "Servernamen";
    ca_certificates: "CA certificates", "CA-Zertifikate";
    realms: "Realms", "Realms";
    users: "Users", "Benutzer";
    users_lead: "Users by name. The search finds what a name or an e-mail address begins with.", "Benutzer nach Namen. Die Suche findet, womit ein Name oder eine E-Mail-Adresse beginnt.";
    begins_hint: "begins with", "beginnt mit";
    groups: "Groups", "Gruppen";
    factors: "Second factors", "Zweite Faktoren";
    linked_accounts: "Accounts at other providers", "Konten bei anderen Anbietern";
    consents: "Consents", "Einwilligungen";
    withdraw: "Withdraw", "Widerrufen";
    unlock: "Unlock", "Entsperren";
    send_letter: "Send a link for a new password", "Link für ein neues Passwort senden";
    end_sessions: "End all sessions", "Alle Sitzungen beenden";
    reset_factors: "Remove all factors", "Alle Faktoren entfernen";
    activate: "Activate", "Aktivieren";
    deactivate: "Deactivate", "Deaktivieren";
    locked_until: "The name is locked after wrong passwords until", "Der Name ist nach falschen Passwörtern gesperrt bis";
    user_of_file: "The configuration file declares this user. Attributes are changed there.", "Die Konfigurationsdatei deklariert diesen Benutzer. Attribute werden dort geändert.";
    letter_sent: "A message with a link for a new password is on its way.", "Eine Nachricht mit einem Link für ein neues Passwort ist unterwegs.";
    new_user: "New user", "Neuer Benutzer";
    new_group: "New group", "Neue Gruppe";
    own_account: "This is your own account. Another owner can deactivate or delete it. Nothing was changed.", "Das ist Ihr eigenes Konto. Ein anderer Eigentümer kann es deaktivieren oder löschen. Es wurde nichts geändert.";
    last_owner_group: "You are an owner by this group alone. Another owner can change it. Nothing was changed.", "Nur durch diese Gruppe sind Sie Eigentümer. Ein anderer Eigentümer kann sie ändern. Es wurde nichts geändert.";
    user_name: "User name", "Benutzername";
    name_taken: "This name is taken.", "Dieser Name ist vergeben.";
    no_user: "There is no user of this name. Nothing was changed.", "Es gibt keinen Benutzer dieses Namens. Es wurde nichts geändert.";
    members: "Members", "Mitglieder";
    add_member: "Add", "Hinzufügen";
    remove: "Remove", "Entfernen";
    password_stays: "Empty: it stays. A new one ends the sessions of the user.", "Leer: es bleibt. Ein neues beendet die Sitzungen des Benutzers.";
    emails_hint: "One address a line, the primary one first.", "Eine Adresse je Zeile, die wichtigste zuerst.";
    done: "This is done.", "Das ist erledigt.";
    clients: "Clients", "Clients";
    client: "Client", "Client";
    sessions: "Sessions", "Sitzungen";
    new_client: "New client", "Neuer Client";
    new_client_lead: "Which kind is it? The form comes filled in for it.", "Welcher Art ist er? Das Formular ist dafür ausgefüllt.";
    kind: "Kind", "Art";
    client_web: "Web application", "Web-Anwendung";
    client_web_lead: "Runs on a server that can keep a secret. Users sign in with a browser.", "Läuft auf einem Server, der ein Geheimnis wahren kann. Benutzer melden sich mit einem Browser an.";
    client_spa: "Single-page application", "Single-Page-Anwendung";
    client_spa_lead: "Runs in the browser and can keep no secret. PKCE protects its codes.", "Läuft im Browser und kann kein Geheimnis wahren. PKCE schützt ihre Codes.";
    client_native: "Native application", "Native Anwendung";
    client_native_lead: "Runs on a device. It is led back by a scheme of its own, an https link or a port on loopback.", "Läuft auf einem Gerät. Zurück führt ein eigenes Schema, ein https-Link oder ein Port auf Loopback.";
    client_service: "Service", "Dienst";
    client_service_lead: "A program that acts on its own behalf. No user signs in.", "Ein Programm, das im eigenen Namen handelt. Kein Benutzer meldet sich an.";
    client_id_hint: "Empty: one is made.", "Leer: Eine Kennung wird erzeugt.";
    scope_hint: "Scopes with blanks between. A service gets no token without one.", "Scopes mit Leerzeichen dazwischen. Ohne einen bekommt ein Dienst kein Token.";
    pkce_hint: "Codes are good only with the proof of who asked for them (RFC 7636).", "Codes gelten nur mit dem Beweis dessen, der sie verlangt hat (RFC 7636).";
    pkce_needed: "A client without a secret needs PKCE.", "Ein Client ohne Geheimnis braucht PKCE.";
    secret_needed: "A service proves who it is.", "Ein Dienst weist sich aus.";
    id_stays: "The identifier can't be changed.", "Die Kennung lässt sich nicht ändern.";
    secret_rotate: "New secret", "Neues Geheimnis";
    secret_old: "the secret of now", "das jetzige Geheimnis";
    secret_new: "a new one, shown once", "ein neues, das einmal gezeigt wird";
    secret_note: "This can't be undone. The old secret is refused at once.", "Das lässt sich nicht rückgängig machen. Das alte Geheimnis wird sofort abgelehnt.";
    no_secret_back: "A secret goes with it, and can't be brought back.", "Damit geht ein Geheimnis, das sich nicht wiederherstellen lässt.";
    client_comes_back: "Its tokens, sessions and consents are gone for good. For an hour the audit log can make the client anew, with a new secret.", "Seine Tokens, Sitzungen und Einwilligungen sind endgültig weg. Eine Stunde lang kann das Audit-Log den Client neu anlegen, mit einem neuen Geheimnis.";
    no_client_back: "This can't be undone. The client registered itself and has to do so again.", "Das lässt sich nicht rückgängig machen. Der Client hat sich selbst registriert und muss es wieder tun.";
    no_realm_back: "This can't be undone: secrets of the settings are gone for good.", "Das lässt sich nicht rückgängig machen: Geheimnisse der Einstellungen sind endgültig weg.";
    new_realm: "New realm", "Neuer Realm";
    new_realm_lead: "A path below a realm that exists, such as /staff. Its settings are those of the realm above until you change them.", "Ein Pfad unter einem Realm, den es gibt, etwa /staff. Seine Einstellungen sind die des Realms darüber, bis Sie sie ändern.";
    settings_in_force: "Settings in force", "Geltende Einstellungen";
    settings_lead: "An empty field takes over the value of the realm above. Fields with a common first name are set together.", "Ein leeres Feld übernimmt den Wert des Realms darüber. Felder mit gemeinsamem erstem Namen werden zusammen gesetzt.";
    mail: "Mail", "E-Mail";
    probes: "Test connections", "Verbindungen testen";
    probes_lead: "Only what the configuration names is asked. Twenty tests are made in five minutes at most.", "Gefragt wird nur, was die Konfiguration nennt. In fünf Minuten gibt es höchstens zwanzig Tests.";
    probe_provider: "Fetch metadata and keys", "Metadaten und Schlüssel holen";
    probe_directory: "Bind and search", "Anmelden und suchen";
    probe_name: "Name to search for", "Gesuchter Name";
    probe_mail: "Send a test message", "Testnachricht senden";
    probe_to: "E-mail address", "E-Mail-Adresse";
    probe_absent: "The configuration names nothing of this kind.", "Die Konfiguration nennt nichts dieser Art.";
    keys: "Signing keys", "Signaturschlüssel";
    keys_lead: "The keys belong to all realms. A key signs from its day on, and older ones check what they signed.", "Die Schlüssel gehören allen Realms. Ein Schlüssel signiert von seinem Tag an, ältere prüfen, was sie signiert haben.";
    key_use: "Use", "Verwendung";
    key_active: "signs", "signiert";
    key_next: "published, signs later", "veröffentlicht, signiert später";
    key_old: "checks only", "prüft nur noch";
    key_withdrawn: "withdrawn", "zurückgezogen";
    key_new: "new key", "neuer Schlüssel";
    age: "Age", "Alter";
    key_announce: "Publish successors", "Nachfolger veröffentlichen";
    key_switch: "Rotate at once", "Sofort wechseln";
    key_replace: "Replace at once, withdraw the old", "Sofort ersetzen, alte zurückziehen";
    key_announce_note: "Programs that keep keys see the successors before these sign.", "Programme, die Schlüssel aufbewahren, sehen die Nachfolger, bevor diese signieren.";
    key_switch_note: "This can't be undone. Programs that keep keys may refuse new tokens until they ask for keys again.", "Das lässt sich nicht rückgängig machen. Programme, die Schlüssel aufbewahren, lehnen neue Tokens vielleicht ab, bis sie wieder nach Schlüsseln fragen.";
    key_replace_note: "This can't be undone. Every token that the old keys signed is refused from then on, and everybody signs in again.", "Das lässt sich nicht rückgängig machen. Jedes Token, das die alten Schlüssel signiert haben, wird dann abgelehnt, und alle melden sich neu an.";
    lockouts: "Lockouts", "Sperren";
    audit_log: "Audit log", "Audit-Log";
    audit_lead: "Who did what, and what came of it. Times are UTC.", "Wer was getan hat und was daraus wurde. Zeiten sind UTC.";
    sign_in: "Sign in", "Anmelden";
    sign_in_lead: "The admin token of the configuration file opens the console.", "Das Admin-Token der Konfigurationsdatei öffnet die Konsole.";
    admin_token: "Admin token", "Admin-Token";
    wrong_token: "This is not the admin token.", "Das ist nicht das Admin-Token.";
    too_many: "Too many wrong tokens came from your address. Try again in a minute.", "Von Ihrer Adresse kamen zu viele falsche Token. Versuchen Sie es in einer Minute noch einmal.";
    sign_in_provider: "Sign in with your account", "Mit Ihrem Konto anmelden";
    sign_in_provider_lead: "Your account at the identity provider opens the console. What you may do follows from your groups.", "Ihr Konto beim Identitätsanbieter öffnet die Konsole. Was Sie dürfen, folgt aus Ihren Gruppen.";
    sign_in_token: "Sign in with the admin token", "Mit dem Admin-Token anmelden";
    sign_in_state: "This sign-in did not begin in this browser, lasted too long, or was used before. Sign in again.", "Diese Anmeldung begann nicht in diesem Browser, dauerte zu lange oder wurde schon verwendet. Melden Sie sich noch einmal an.";
    sign_in_refused: "The identity provider did not sign you in.", "Der Identitätsanbieter hat Sie nicht angemeldet.";
    sign_in_answer: "What the identity provider said does not belong to this sign-in. Sign in again.", "Was der Identitätsanbieter gesagt hat, gehört nicht zu dieser Anmeldung. Melden Sie sich noch einmal an.";
    sign_in_address: "Nobody signs in under this address. Open the console under the address that admin.console.address names, or under localhost.", "Unter dieser Adresse meldet sich niemand an. Öffnen Sie die Konsole unter der Adresse, die admin.console.address nennt, oder unter localhost.";
    no_group: "None of your groups has a role in the console. Ask the people who administer your groups for one.", "Keine Ihrer Gruppen hat in der Konsole eine Rolle. Wer Ihre Gruppen verwaltet, kann Ihnen eine geben.";
    unavailable: "Nobody can say now who you are. Try again in a moment. Nothing was changed.", "Gerade lässt sich nicht sagen, wer Sie sind. Versuchen Sie es gleich noch einmal. Es wurde nichts geändert.";
    signed_out: "You are signed out", "Sie sind abgemeldet";
    signed_out_lead: "You may still be signed in at the identity provider.", "Beim Identitätsanbieter sind Sie vielleicht noch angemeldet.";
    sign_out_provider: "Sign out at the identity provider", "Beim Identitätsanbieter abmelden";
    realm: "Realm", "Realm";
    viewer: "viewer", "Leser";
    operator: "operator", "Betreiber";
    owner: "owner", "Eigentümer";
    sign_out: "Sign out", "Abmelden";
    error: "This did not work", "Das hat nicht geklappt";
    not_found: "There is no such page.", "Diese Seite gibt es nicht.";
    bad_form: "The page does not know this request.", "Diese Anfrage kennt die Seite nicht.";
    no_session: "You are not signed in any more. Nothing was changed.", "Sie sind nicht mehr angemeldet. Es wurde nichts geändert.";
    no_role: "Your role does not allow this.", "Ihre Rolle erlaubt das nicht.";
    step_up: "You signed in too long ago for a change. Sign in again, then repeat it. Nothing was changed.", "Für eine Änderung liegt Ihre Anmeldung zu lange zurück. Melden Sie sich noch einmal an und wiederholen Sie sie. Es wurde nichts geändert.";
    sign_in_again: "Sign in again", "Noch einmal anmelden";
    stale: "The form is not one of this session. Load the page again. Nothing was changed.", "Das Formular gehört nicht zu dieser Sitzung. Laden Sie die Seite neu. Es wurde nichts geändert.";
    changed: "Somebody has changed the record since you opened it. Look at it again. Nothing was changed.", "Der Eintrag wurde geändert, seit Sie ihn geöffnet haben. Sehen Sie ihn noch einmal an. Es wurde nichts geändert.";
    file_owned: "This record is declared in a file and is changed there:", "Dieser Eintrag steht in einer Datei und wird dort geändert:";
    unreadable: "The answer makes no page.", "Aus der Antwort lässt sich keine Seite machen.";
    search: "Search", "Suche";
    search_hint: "contains", "enthält";
    find: "Search", "Suchen";
    tags: "Tags", "Tags";
    tags_hint: "a,b or a/b", "a,b oder a/b";
    create: "New", "Neu";
    edit: "Edit", "Bearbeiten";
    delete: "Delete", "Löschen";
    apply: "Apply", "Übernehmen";
    cancel: "Cancel", "Abbrechen";
    back: "Back", "Zurück";
    go_on: "Go on", "Weiter";
    more: "Next page", "Nächste Seite";
    actions: "Actions", "Aktionen";
    on: "on", "an";
    off: "off", "aus";
    switch_on: "Switch on", "Einschalten";
    switch_off: "Switch off", "Ausschalten";
    yes: "yes", "ja";
    no: "no", "nein";
    stored: "store", "Speicher";
    origin: "Origin", "Herkunft";
    nothing: "There is nothing here.", "Hier gibt es nichts.";
    fields: "Fields", "Felder";
    field: "Field", "Feld";
    value: "Value", "Wert";
    name: "Name", "Name";
    default: "default", "Vorgabe";
    defaults: "Fields with their default", "Felder mit ihrer Vorgabe";
    required: "required", "nötig";
    views: "As text", "Als Text";
    copy: "Copy", "Kopieren";
    copied: "Copied", "Kopiert";
    form_lead: "An empty field keeps its default. Only what you fill in is stored.", "Ein leeres Feld behält seine Vorgabe. Gespeichert wird nur, was Sie ausfüllen.";
    all_settings: "All settings", "Alle Einstellungen";
    lines_hint: "One value a line.", "Ein Wert je Zeile.";
    json_hint: "JSON.", "JSON.";
    reference_hint: "Name or id.", "Name oder Kennung.";
    secret_stays: "A secret is set. Empty: it stays.", "Ein Geheimnis ist gesetzt. Leer: es bleibt.";
    to_difference: "Show the difference", "Unterschied zeigen";
    as_json: "Edit as JSON", "Als JSON bearbeiten";
    whole_record: "The whole record", "Der ganze Eintrag";
    has_errors: "Some fields are not right:", "Einige Felder stimmen nicht:";
    expected: "expected:", "erwartet:";
    no_object: "expected a JSON object", "erwartet: ein JSON-Objekt";
    mask_in_change: "A secret that is shown as ** can't be written back: give its text.", "Ein Geheimnis, das als ** gezeigt wird, kann nicht zurückgeschrieben werden: Geben Sie seinen Text an.";
    choose_plugin: "New plugin", "Neues Plugin";
    difference: "The difference", "Der Unterschied";
    difference_lead: "Nothing is changed yet. This is what the change does:", "Noch ist nichts geändert. Das bewirkt die Änderung:";
    no_difference: "Nothing differs.", "Es gibt keinen Unterschied.";
    delete_title: "Delete?", "Löschen?";
    delete_lead: "Nothing is deleted yet. This record will be gone:", "Noch ist nichts gelöscht. Dieser Eintrag wird weg sein:";
    undo: "Undo", "Rückgängig";
    not_undoable: "This change can't be undone any more. It was undone before, or is older than an hour.", "Diese Änderung lässt sich nicht mehr rückgängig machen. Sie wurde schon rückgängig gemacht oder ist älter als eine Stunde.";
    no_user_back: "This can't be undone. Sessions, tokens, second factors, consents and memberships of the user are gone for good.", "Das lässt sich nicht rückgängig machen. Sitzungen, Tokens, zweite Faktoren, Einwilligungen und Mitgliedschaften des Benutzers sind endgültig weg.";
    no_factors_back: "This can't be undone. The sessions of the user end, too.", "Das lässt sich nicht rückgängig machen. Auch die Sitzungen des Benutzers enden.";
    no_password_back: "The old password can't be brought back. The sessions of the user end.", "Das alte Passwort lässt sich nicht wiederherstellen. Die Sitzungen des Benutzers enden.";
    no_group_back: "This can't be undone: the group has more than 1,000 members.", "Das lässt sich nicht rückgängig machen: Die Gruppe hat mehr als 1.000 Mitglieder.";
    group_comes_back: "For an hour the audit log can make the group anew, with its members and another identifier.", "Eine Stunde lang kann das Audit-Log die Gruppe neu anlegen, mit ihren Mitgliedern und einer anderen Kennung.";
    no_entity_back: "This can't be undone: secrets of the record, or records below it, are gone for good.", "Das lässt sich nicht rückgängig machen: Geheimnisse des Eintrags oder Einträge darunter sind endgültig weg.";
    before: "Before", "Vorher";
    after: "After", "Nachher";
    shown_once: "Keep this secret", "Bewahren Sie dieses Geheimnis auf";
    shown_once_lead: "It is shown this once and never again.", "Es wird nur dieses eine Mal gezeigt.";
    live: "Live", "Live";
    pause: "Pause", "Anhalten";
    needs_script: "Live charts need a script. All other pages work without.", "Live-Diagramme brauchen ein Skript. Alle anderen Seiten kommen ohne aus.";
    requests_second: "Requests a second by service", "Anfragen je Sekunde nach Service";
    latency: "Latency in milliseconds", "Latenz in Millisekunden";
    statuses: "Answers a second by status", "Antworten je Sekunde nach Status";
    node: "Node", "Knoten";
    nodes: "Nodes", "Knoten";
    this_node: "this one", "dieser";
    started: "Started", "Gestartet";
    last_seen: "Last seen", "Zuletzt gesehen";
    revision: "Revision", "Revision";
    version: "Version", "Version";
    store: "Store", "Speicher";
    reachable: "reachable", "erreichbar";
    unreachable: "not reachable", "nicht erreichbar";
    configuration: "Configuration", "Konfiguration";
    in_force: "in force", "in Kraft";
    not_in_force: "The files are not in force", "Die Dateien sind nicht in Kraft";
    memory: "Memory", "Arbeitsspeicher";
    requests: "Requests", "Anfragen";
    connections: "Open connections", "Offene Verbindungen";
    upstream_health: "Health of upstreams", "Gesundheit der Upstreams";
    no_targets: "No upstream has targets.", "Kein Upstream hat Ziele.";
    health: "Health", "Gesundheit";
    healthy: "healthy", "gesund";
    unhealthy: "unhealthy", "krank";
    in_flight: "In flight", "Unterwegs";
    expiries: "Expiry of certificates", "Ablauf der Zertifikate";
    no_certificates: "There are no certificates.", "Es gibt keine Zertifikate.";
    left: "Left", "Bleibt";
    days: "days", "Tage";
    expired: "expired", "abgelaufen";
    refusals_lead: "Every code that logs and metrics know, how often it was since the start, and what it means.", "Jeder Code, den Logs und Metriken kennen, wie oft er seit dem Start vorkam und was er bedeutet.";
    no_refusals: "Plugins have refused nothing since the start.", "Plugins haben seit dem Start nichts abgelehnt.";
    explain_one: "Explain a request", "Eine Anfrage erklären";
    all_codes: "any of its codes", "einer seiner Codes";
    code: "Code", "Code";
    status: "Status", "Status";
    count: "Count", "Anzahl";
    meaning: "Meaning", "Bedeutung";
    explain_lead: "What happens to a request, and why. No request is sent.", "Was mit einer Anfrage geschieht und warum. Es wird keine Anfrage gesendet.";
    refused_last: "Refused last", "Zuletzt abgewiesen";
    request: "Request", "Anfrage";
    method: "Method", "Methode";
    url: "URL or path", "URL oder Pfad";
    url_hint: "https://api.example/orders", "https://api.example/orders";
    client_address: "Client address", "Client-Adresse";
    headers: "Headers, one a line", "Header, einer je Zeile";
    verdict: "Verdict", "Ergebnis";
    passes: "The request passes.", "Die Anfrage kommt durch.";
    no_route: "No route takes the request.", "Keine Route nimmt die Anfrage an.";
    understood: "Understood as", "Verstanden als";
    matched: "Matched by", "Passt wegen";
    steps: "Steps", "Schritte";
    goes_to: "Goes to", "Geht an";
    host_header: "Host", "Host";
    filters: "Filters in their order", "Filter in ihrer Reihenfolge";
    no_filters: "No filter runs.", "Es läuft kein Filter.";
    scope: "Scope", "Bereich";
    decision: "Decision", "Entscheidung";
    decision_passes: "passes", "lässt durch";
    decision_depends: "depends", "hängt davon ab";
    decision_runs: "runs", "läuft";
    decision_none: "not reached", "nicht erreicht";
    reason: "Reason", "Grund";
    near_misses: "Routes that almost matched", "Routen, die beinahe passten";
    address: "Address", "Adresse";
    weight: "Weight", "Gewicht";
    throttling_lead: "Filters that count requests by partition on this node.", "Filter, die auf diesem Knoten Anfragen nach Partitionen zählen.";
    no_throttling: "No filter counts by partition.", "Kein Filter zählt nach Partitionen.";
    partitions: "Hottest partitions", "Meistgenutzte Partitionen";
    partitions_lead: "Partitions may name people, so their texts are hidden at first.", "Partitionen können Menschen benennen, daher sind ihre Texte zunächst verborgen.";
    reveal_partitions: "Show the texts", "Texte zeigen";
    hide_partitions: "Hide the texts", "Texte verbergen";
    partition: "Partition", "Partition";
    passed: "Passed", "Durchgelassen";
    refused: "Refused", "Abgelehnt";
    buckets: "Buckets", "Eimer";
    maximum: "Most buckets", "Höchstzahl";
    counters: "Counters", "Zähler";
    shadow: "Shadow", "Nur beobachtet";
    reset: "Reset", "Zurücksetzen";
    route_files_lead: "In the order in which requests are offered to them.", "In der Reihenfolge, in der Anfragen ihnen angeboten werden.";
    no_route_files: "There are no route files.", "Es gibt keine Routendateien.";
    order: "Order", "Reihenfolge";
    file: "File", "Datei";
    state: "State", "Zustand";
    errors: "Errors", "Fehler";
    warnings: "Warnings", "Warnungen";
    time: "Time", "Zeit";
    event: "Event", "Ereignis";
    actor: "Who", "Wer";
    target_of: "What", "Was";
    user: "User", "Benutzer";
    outcome: "Outcome", "Ausgang";
    success: "success", "Erfolg";
    failure: "failure", "Fehlschlag";
    since: "Since", "Seit";
    until: "Until", "Bis";
    end: "End", "Beenden";
}

impl Texts {
    /// The other language.
    pub(crate) fn other(&self) -> &'static Texts {
        if self.lang == ENGLISH.lang {
            &GERMAN
        } else {
            &ENGLISH
        }
    }
}

fn of(tag: &str) -> Option<&'static Texts> {
    let primary = tag.trim().split('-').next().unwrap_or_default();
    [&ENGLISH, &GERMAN]
        .into_iter()
        .find(|texts| texts.lang.eq_ignore_ascii_case(primary))
}

/// The tag of a language that the pages speak.
pub(crate) fn tag(text: &str) -> Option<&'static str> {
    of(text).map(|texts| texts.lang)
}

/// The language of a visitor: what was chosen here, then what the browser wants.
pub(crate) fn choose(headers: &HeaderMap) -> &'static Texts {
    if let Some(chosen) = cookie::value(headers, COOKIE).and_then(of) {
        return chosen;
    }
    let wanted = headers.get(ACCEPT_LANGUAGE);
    let wanted = wanted
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let mut best: Option<(u16, &'static Texts)> = None;
    for item in wanted.split(',').take(32) {
        let mut parts = item.split(';');
        let texts = parts.next().and_then(of);
        let weight = weight(parts);
        if let Some(texts) = texts
            && weight > best.map_or(0, |(weight, _)| weight)
        {
            best = Some((weight, texts));
        }
    }
    best.map_or(&ENGLISH, |(_, texts)| texts)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::COOKIE as COOKIE_HEADER;

    use super::*;

    fn chosen(accept: &'static str, cookie: Option<&'static str>) -> &'static str {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_LANGUAGE, HeaderValue::from_static(accept));
        if let Some(cookie) = cookie {
            headers.insert(COOKIE_HEADER, HeaderValue::from_static(cookie));
        }
        choose(&headers).lang
    }

    #[test]
    fn the_browser_says_which_language_until_somebody_chooses() {
        assert_eq!(chosen("", None), "en");
        assert_eq!(chosen("fr", None), "en");
        assert_eq!(chosen("de-AT, en;q=0.8", None), "de");
        assert_eq!(chosen("de;q=0.3, en;q=0.8", None), "en");
        assert_eq!(chosen("de", Some("doorward_console_language=en")), "en");
        assert_eq!(chosen("de", Some("doorward_console_language=xx")), "de");
    }
}
