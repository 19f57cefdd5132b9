// Signing in, when the server asks for a bearer token.

import { Problem } from './api.js';
import { field } from './dialog.js';
import { h, swap } from './dom.js';
import { setToken, token } from './session.js';

/**
 * Returns the form that asks for a token.
 * @param {boolean} refused whether the current token was rejected
 */
export function signIn(refused) {
  const why = h('p', { class: 'field-error', role: 'alert', id: 'token-error' });
  if (refused && token()) swap(why, 'The server does not know this token, or it has expired.');
  const form = h('form', { class: 'panel sign-in', on: { submit: submit } },
    h('h1', { tabindex: '-1' }, 'Sign in'),
    h('p', null, 'This server requires a token. It is kept in this tab until you close it, and sent only to this server.'),
    field('Token', 'token', { type: 'password', autocomplete: 'off', spellcheck: 'false', required: true, 'aria-describedby': 'token-error' }),
    why, h('div', { class: 'dialog-actions' }, h('button', { type: 'submit', class: 'primary' }, 'Sign in')));

  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    const text = form.elements.token.value.trim();
    try {
      if (!text) throw new Problem(400, { detail: 'Enter a token.' });
      // A character that a header cannot contain would throw far from here.
      if (!/^[\x21-\x7e]+$/.test(text)) throw new Problem(400, { detail: 'A token has no spaces and only ASCII characters.' });
      setToken(text);
    } catch (err) {
      swap(why, err instanceof Error ? err.message : String(err));
    }
  }
  return form;
}
