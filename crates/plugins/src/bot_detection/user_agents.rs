//! Programs that are refused unless they are allowed: crawlers, and libraries
//! with which programs are clients of HTTP.

use std::sync::LazyLock;

use regex::bytes::{RegexSet, RegexSetBuilder};

/// Words of crawlers and of programs that are no browsers. Case counts where a
/// word has capitals of its own.
const PATTERNS: &[&str] = &[
    // A name that ends in what it does, and a version.
    r"(?i)[a-z0-9._-]*(?:bot|spider|crawler|crawl|scraper|archiver|fetcher|harvest|validator)/v?\d",
    r"(?i)\b(?:web|site|link|feed)[ _-]?(?:crawler|spider|checker|scraper|fetcher)\b",
    // Search engines.
    r"Google(?:bot|-Extended|Other)|Mediapartners-Google|AdsBot-Google|APIs-Google|FeedFetcher-Google",
    r"(?i)bingbot|adidxbot|msnbot|BingPreview",
    r"(?i)yahoo! slurp|yandex(?:bot|images|media|metrika)|baiduspider|sogou .*spider|360spider",
    r"(?i)duckduckbot|applebot|petalbot|qwantify|seznambot|naverbot|yeti/\d|mojeekbot|exabot",
    r"(?i)\bia_archiver\b|archive\.org_bot|heritrix|ccbot|commoncrawl|nutch",
    // Social networks and their previews.
    r"facebookexternalhit|Facebot|meta-externalagent|Twitterbot|LinkedInBot|Pinterest(?:bot)?/\d",
    r"Slackbot|Slack-ImgProxy|TelegramBot|Discordbot|WhatsApp/\d|SkypeUriPreview|redditbot|Embedly",
    // Who measures sites, and who learns from them.
    r"(?i)ahrefsbot|semrushbot|mj12bot|dotbot|rogerbot|blexbot|screaming frog|sistrix|serpstatbot",
    r"(?i)uptimerobot|pingdom|statuscake|site24x7|newrelicpinger|datadogsynthetics",
    r"(?i)gptbot|chatgpt-user|oai-searchbot|claudebot|claude-web|anthropic-ai|perplexitybot|bytespider|cohere-ai|amazonbot",
    // Libraries.
    r"(?i)^python-(?:urllib|requests|httpx)/|^python/\d|\baiohttp/|^httpx?/|^urllib3/|scrapy",
    r"^Go-http-client/|^Go \d|^okhttp/|^axios/|^node-fetch|^undici|^got[ /(]|^superagent",
    r"Apache-HttpClient/|Apache-HttpAsyncClient/|Jakarta Commons-HttpClient|Java/1\.|^Java-http-client/|^Jersey/",
    r"^libwww-perl/|^lwp-|^WWW-Mechanize|^PHP/|GuzzleHttp/|^PycURL/|^Ruby$|^Faraday |^rest-client/|^Typhoeus",
    r"^reqwest/|^hyper/|^ureq/|^Dart/\d|^Alamofire|^RestSharp/|^Microsoft-WinHttp|^WinHttp",
    r"(?i)^aws-(?:sdk|cli)|^Boto3?/|^botocore/|^Google-HTTP-Java-Client|^azsdk-",
];

/// All of them. They are fixed, and a test compiles them.
pub(super) static BOTS: LazyLock<RegexSet> = LazyLock::new(|| {
    let set = RegexSetBuilder::new(PATTERNS)
        .size_limit(super::MAX_PATTERNS)
        .build();
    set.unwrap_or_else(|_| RegexSet::empty())
});
