// The pages of the console, and the owner who looks at them.
import { signIn } from './chromium.mjs'

export const place = `${process.env.DOORWARD_ADMIN}/console`

/** Every page that a visitor finds, by its address: `console_pages.rs` makes the list of the
 * console's own table, with a record of each kind. */
export const PAGES = JSON.parse(process.env.DOORWARD_CONSOLE_PAGES)

/** Every form that is answered with a page, by its path: `{}` is an open part. */
export const FORMS = JSON.parse(process.env.DOORWARD_CONSOLE_FORMS)

/** How a visitor looks at the pages: language, colours and window, one for each half. */
export const LOOKS = [
  { locale: 'en-GB', colorScheme: 'light', viewport: { width: 1280, height: 800 } },
  { locale: 'de-DE', colorScheme: 'dark', viewport: { width: 360, height: 800 } },
]

/** Which half of the work is done here: each has a time of its own. */
export const HALF = Number(process.env.DOORWARD_CONSOLE_HALF)

/** Signs in as an owner. */
export async function owner(page, locale) {
  const word = locale === 'de-DE' ? 'Mit Ihrem Konto anmelden' : 'Sign in with your account'
  await page.goto(`${place}/gateway/services`)
  await page.getByRole('link', { name: word }).click()
  await signIn(page, 'alice')
  await page.waitForURL(`${place}/gateway/services`)
}
