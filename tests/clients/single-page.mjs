// A client that is all in a page: oidc-client-ts in Chromium, across origins.
import { issuer, strict } from './setting.mjs'
import { close, launch, person, shot, signIn, site } from './chromium.mjs'
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const LIBRARY = createRequire(import.meta.url).resolve('oidc-client-ts').replace('umd/oidc-client-ts.js', 'browser/oidc-client-ts.min.js')

before(async () => {
  await launch()
  site.pages.set('/oidc.js', readFileSync(LIBRARY, 'utf8'))
  const page = `<!DOCTYPE html><html lang="en"><title>page</title><link rel="icon" href="data:,"><script src="/oidc.js"></script>`
  site.pages.set('/page', page)
})
after(close)

/** Makes a user manager in the page. */
const manage = (page, settings) =>
  page.evaluate((settings) => {
    const { store, ...rest } = settings
    const dpop = store && { bind_authorization_code: true, store: new oidc.IndexedDbDPoPStore() }
    window.manager = new oidc.UserManager({ ...rest, dpop })
  }, settings)

function settings(client_id, authority, more) {
  return {
    authority,
    client_id,
    redirect_uri: 'https://app.test/page',
    post_logout_redirect_uri: 'https://app.test/page',
    scope: 'openid profile offline_access',
    prompt: 'consent',
    loadUserInfo: true,
    automaticSilentRenew: false,
    monitorSession: false,
    ...more,
  }
}

async function visit(client_id, authority, more) {
  const { page, leave } = await person()
  const all = settings(client_id, authority, more)
  await page.goto('https://app.test/page')
  await manage(page, all)
  // Nobody waits for it: it leads away from the page.
  await page.evaluate(() => void window.manager.signinRedirect())
  await page.waitForURL((url) => url.pathname.endsWith('/authorize/login') || url.pathname.endsWith('/authorize'))
  await signIn(page)
  const approve = page.locator('button[name=approve]')
  const back = page.waitForURL((url) => url.pathname === '/page' && url.search.includes('code='))
  await Promise.race([back, approve.click().catch(() => {})])
  await back
  await manage(page, all)
  const user = await page.evaluate(async () => {
    const { access_token, refresh_token, token_type, profile } = await window.manager.signinRedirectCallback()
    return { access_token, refresh_token, token_type, profile }
  })
  return { page, leave, user }
}

test('signs its user in, refreshes, revokes and signs out', async () => {
  const { page, leave, user } = await visit('page', issuer, { revokeTokensOnSignout: true })
  assert.equal(user.profile.sub, 'demo')
  assert.equal(user.profile.name, 'Demo User')
  assert.equal(user.token_type, 'Bearer')
  const next = await page.evaluate(async () => {
    const { access_token, refresh_token } = await window.manager.signinSilent()
    return { access_token, refresh_token }
  })
  assert.notEqual(next.access_token, user.access_token)
  assert.notEqual(next.refresh_token, user.refresh_token)
  await page.evaluate(() => void window.manager.signoutRedirect({ state: 'bye' }))
  await page.waitForURL((url) => url.pathname === '/page' && url.searchParams.has('state'))
  await leave()
})

for (const authority of [issuer, strict]) {
  test(`binds its tokens to a key of the browser at ${new URL(authority).pathname}`, async () => {
    const { page, leave, user } = await visit('bound-page', authority, { store: true, loadUserInfo: false })
    assert.equal(user.token_type, 'DPoP')
    const status = await page.evaluate(async (url) => {
      const user = await window.manager.getUser()
      let nonce
      for (let tries = 0; ; tries += 1) {
        const proof = await window.manager.dpopProof(url, user, 'GET', nonce)
        const headers = { authorization: `DPoP ${user.access_token}`, dpop: proof }
        const response = await fetch(url, { headers })
        nonce = response.headers.get('dpop-nonce')
        if (response.status !== 401 || !nonce || tries > 0) return response.status
      }
    }, `${authority}/userinfo`)
    assert.equal(status, 200)
    await page.evaluate(() => window.manager.signinSilent())
    await shot(page, 'client-in-a-page')
    await leave()
  })
}

test('another site learns nothing from answers', async () => {
  const { context, page } = await person()
  const blocked = await page.goto('https://app.test/page').then(() =>
    page.evaluate(async (url) => {
      const body = new URLSearchParams({ grant_type: 'client_credentials' })
      const told = await fetch(`${url}/introspect`, { method: 'POST', body, credentials: 'include' }).catch(() => 'blocked')
      return told === 'blocked'
    }, issuer),
  )
  assert.ok(blocked)
  await context.close()
})
