// The pictures that pages of docs/ show: `make pictures` keeps them there.
import test, { after, before } from 'node:test'
import { mkdirSync, writeFileSync } from 'node:fs'
import { signIn, start } from './chromium.mjs'

const place = `${process.env.DOORWARD_ADMIN}/console`
const PICTURES = process.env.DOORWARD_PICTURES

let browser

before(async () => {
  mkdirSync(PICTURES, { recursive: true })
  browser = await start()
})

after(() => browser?.close())

async function visitor(height = 560) {
  const viewport = { width: 960, height }
  const context = await browser.newContext({ locale: 'en-GB', viewport, reducedMotion: 'reduce' })
  const page = await context.newPage()
  page.setDefaultTimeout(60_000)
  return page
}

/** Keeps what the window shows, small. */
async function picture(page, name) {
  const session = await page.context().newCDPSession(page)
  const { data } = await session.send('Page.captureScreenshot', { format: 'webp', quality: 80 })
  writeFileSync(`${PICTURES}/${name}.webp`, Buffer.from(data, 'base64'))
}

/** Goes to a page of the console as the owner. */
async function owner(to, height) {
  const page = await visitor(height)
  await page.goto(`${place}${to}`)
  await page.getByRole('link', { name: 'Sign in with your account' }).click()
  await signIn(page, 'alice')
  await page.waitForURL(`${place}${to}`)
  return page
}

test('the provider signs in and shows the account', async () => {
  const page = await visitor()
  await page.goto(`${process.env.DOORWARD_BASE}/oauth2/account`)
  await page.locator('input[name=password]').waitFor()
  await picture(page, 'sign-in')
  await signIn(page, 'vera')
  await page.getByRole('heading', { level: 1 }).waitFor()
  await picture(page, 'account')
  await page.context().close()
})

test('the console shows services and users', async () => {
  const page = await owner('/gateway/services')
  await picture(page, 'console-services')
  await page.goto(`${place}/identity/users`)
  await page.getByRole('heading', { level: 1 }).waitFor()
  await picture(page, 'console-users')
  await page.context().close()
})

test('explain says what a request would get', async () => {
  const page = await owner('/explain', 900)
  await page.fill('[name=url]', 'http://localhost/orders')
  await page.locator('form.ask button.primary').click()
  await page.locator('.verdict').waitFor()
  await picture(page, 'explain')
  await page.context().close()
})
