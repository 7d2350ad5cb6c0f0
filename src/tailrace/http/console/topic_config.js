// The settings of a topic: each with what it means, changed where it stands, and given back its default.

import { patch, path } from "./api.js";
import { Filter } from "./field.js";
import { Icon } from "./icon.js";
import { Empty, FormError, Loaded } from "./notice.js";
import { useResource } from "./resource.js";
import { meaning, prose, valueText } from "./setting.js";
import { tellUser } from "./toast.js";
import { html, useState } from "./vendor/htm-preact.js";

export function TopicConfig({ name }) {
  const configs = useResource(path`/api/v1/topics/${name}/configs`);
  const [wanted, setWanted] = useState("");
  const [edited, setEdited] = useState("");
  const change = async (setting, value) => {
    await patch(path`/api/v1/topics/${name}`, { configs: { [setting]: value } });
    tellUser(value === null ? `${setting} has its default again` : `${setting} is ${value} now`);
    setEdited("");
    await configs.reload();
  };
  return html`
    <div class="toolbar"><${Filter} label="Filter settings" value=${wanted} onChange=${setWanted} /></div>
    <${Loaded} resource=${configs}>${(data) => {
      const shown = data.configs.filter((each) =>
        `${each.name} ${each.doc}`.toLowerCase().includes(wanted.toLowerCase()),
      );
      if (!shown.length) return html`<${Empty} title="No setting like that" />`;
      return html`<div class="settings">${shown.map(
        (each) => html`<${Setting} key=${each.name} setting=${each}
        isEdited=${edited === each.name} edit=${setEdited} change=${change} />`,
      )}</div>`;
    }}<//>`;
}

function Setting({ setting, isEdited, edit, change }) {
  const { name, value, source, doc, read_only } = setting;
  return html`<div class="setting ${source === "topic" ? "is-own" : ""}" data-setting=${name}>
    <div><div class="setting-name">${name}</div><p>${prose(doc)}</p></div>
    ${
      isEdited
        ? html`<${Edit} setting=${setting} edit=${edit} change=${change} />`
        : html`<div class="setting-value">${valueText(value)}<small>${sourceText(setting)}</small></div>
        <div class="buttons">
          ${source === "topic" && html`<${Reset} name=${name} value=${setting.default} change=${change} />`}
          ${
            !read_only &&
            html`<button type="button" class="button ghost square" aria-label="Change ${name}" title="Change"
            onClick=${() => edit(name)}><${Icon} name="edit" /></button>`
          }
        </div>`
    }
  </div>`;
}

function sourceText({ name, value, source, default: usual }) {
  const meant = meaning(name, value);
  const from =
    { topic: `set on this topic; default ${valueText(usual)}`, node: "broker default" }[source] ?? "default";
  return meant ? `${meant} · ${from}` : from;
}

function Reset({ name, value, change }) {
  const reset = () => change(name, null).catch((error) => tellUser(error.message, { tone: "bad" }));
  return html`<button type="button" class="button ghost square" aria-label="Reset ${name}"
    title="Back to ${valueText(value)}"
    onClick=${reset}><${Icon} name="undo" /></button>`;
}

function Edit({ setting, edit, change }) {
  const [value, setValue] = useState(setting.value);
  const [error, setError] = useState(null);
  const submit = (event) => {
    event.preventDefault();
    change(setting.name, value).catch(setError);
  };
  const press = (event) => event.key === "Escape" && edit("");
  const common = {
    "aria-label": `Value of ${setting.name}`,
    value,
    onInput: (event) => setValue(event.target.value),
    ref: focusOnce,
  };
  return html`<form onSubmit=${submit} onKeyDown=${press}>
    ${
      setting.type === "boolean"
        ? html`<select ...${common}><option value="true">true</option><option value="false">false</option>
          </select>`
        : html`<input ...${common} spellcheck="false" autocomplete="off"
          inputmode=${isNumeric(setting.type) ? "numeric" : "text"} />`
    }
    <button class="button primary">Save</button>
    <button type="button" class="button" onClick=${() => edit("")}>Cancel</button>
    <${FormError} error=${error} />
  </form>`;
}

const isNumeric = (type) => ["int", "short", "long"].includes(type);

function focusOnce(field) {
  if (field && !field.dataset.focused) {
    field.dataset.focused = "true";
    field.focus();
  }
}
