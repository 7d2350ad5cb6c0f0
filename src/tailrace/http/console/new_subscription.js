// The form for a new subscription.

import { post } from "./api.js";
import { Dialog } from "./dialog.js";
import { Field } from "./field.js";
import { FormError } from "./notice.js";
import { useResource } from "./resource.js";
import { go, href } from "./router.js";
import { tellUser } from "./toast.js";
import { html, useState } from "./vendor/htm-preact.js";

const MODES = [
  ["shared", "shared: each message to one member"],
  ["exclusive", "exclusive: one member alone"],
  ["failover", "failover: one member, others wait"],
  ["key_shared", "key_shared: a key stays with a member"],
];
const STARTS = [
  ["earliest", "earliest: the oldest"],
  ["latest", "latest: from now on"],
];

export function NewSubscription({ onClose }) {
  const topics = useResource("/api/v1/topics");
  const [values, setValues] = useState({ name: "", topic: "", mode: "shared", start: "earliest" });
  const [error, setError] = useState(null);
  const set = (name) => (event) => setValues({ ...values, [name]: event.target.value });
  const submit = async (event) => {
    event.preventDefault();
    const { name, topic, start, mode } = values;
    try {
      await post("/api/v1/subscriptions", { name: name.trim(), topic, start, configs: { mode } });
      tellUser(`Subscription ${name.trim()} is there`);
      onClose();
      go(href(["subscriptions", name.trim()]));
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<${Dialog} title="New subscription" onClose=${onClose}><form onSubmit=${submit}>
    <${Field} label="Name"><input data-first required spellcheck="false" autocomplete="off"
      value=${values.name} onInput=${set("name")} /><//>
    <${Field} label="Topic"><input required list="topic-names" spellcheck="false" autocomplete="off"
      value=${values.topic} onInput=${set("topic")} /><//>
    <datalist id="topic-names">${topics.data?.topics.map((each) => html`<option
      value=${each.name} />`)}</datalist>
    <div class="fields">
      <${Field} label="Start at"><select value=${values.start} onChange=${set("start")}>
      ${STARTS.map(option)}</select><//>
      <${Field} label="Mode"><select value=${values.mode} onChange=${set("mode")}>
      ${MODES.map(option)}</select><//>
    </div>
    <${FormError} error=${error} />
    <footer><button type="button" class="button" onClick=${onClose}>Cancel</button><button
      class="button primary">Create</button></footer>
  </form><//>`;
}

const option = ([value, text]) => html`<option value=${value}>${text}</option>`;
