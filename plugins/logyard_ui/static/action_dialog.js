// An action's dialog: its form, then a review of what will be done, then the run.

import { ACTIONS } from "./actions.js";
import { get, pageApi, sentence } from "./api.js";
import { confOn, useCluster } from "./cluster_context.js";
import { plainly } from "./format.js";
import { optionsOf, starting, wrong } from "./forms.js";
import { Fragment, UI, h, useRef, useState } from "./airflow_ui.js";
import { Notice, Problem } from "./components.js";
import { CheckboxField } from "./checkbox.js";
import { SuggestingInput } from "./suggestions.js";
import { RunProgress, ended, start, useRun } from "./dag_runs.js";

const { Box, Button, CloseButton, Code, Dialog, Field, Flex, Input, NativeSelect, Portal, Text, Textarea } = UI;

export function ActionDialog({ asked, close }) {
  const box = useRef(null);
  return h(
    Dialog.Root,
    {
      open: true,
      onOpenChange: ({ open }) => !open && close(),
      size: "md",
      scrollBehavior: "inside",
      initialFocusEl: () => box.current?.querySelector("input:not([type=hidden]), select, textarea") ?? null,
    },
    h(
      Portal,
      null,
      h(Dialog.Backdrop),
      h(
        Dialog.Positioner,
        null,
        h(
          Dialog.Content,
          { ref: box },
          h(Dialog.Header, null, h(Dialog.Title, null, plainly(decided(ACTIONS[asked.action].title, asked.values)))),
          h(Dialog.CloseTrigger, { asChild: true }, h(CloseButton, { size: "sm", "aria-label": "Close" })),
          h(Steps, { asked, close }),
        ),
      ),
    ),
  );
}

// form → review → run.
function Steps({ asked, close }) {
  const spec = ACTIONS[asked.action];
  const [values, setValues] = useState(() => starting(spec, asked.values));
  const [step, setStep] = useState(spec.fields.length ? "form" : "review");
  const [run, setRun] = useState(null);
  if (run) return h(Run, { run, close });
  if (step === "form") return h(Form, { spec, values, setValues, next: () => setStep("review"), close });
  const back = spec.fields.length ? () => setStep("form") : close;
  return h(Review, { spec, values, back, done: setRun });
}

function Form({ spec, values, setValues, next, close }) {
  const { conn } = useCluster();
  const [tried, setTried] = useState(false);
  const [busy, setBusy] = useState(false);
  const [refused, setRefused] = useState({});
  const problems = { ...refused, ...wrong(spec, values) };
  const whole = Object.keys(problems).length === 0 ? (spec.check?.(values) ?? "") : "";
  const submit = async (event) => {
    event.preventDefault();
    if (busy) return;
    setTried(true);
    if (Object.keys(problems).length > 0 || whole) return;
    setBusy(true);
    const found = await asked(spec, conn, values);
    setBusy(false);
    if (found) setRefused(found);
    else next();
  };
  return h(
    Box,
    { as: "form", onSubmit: submit, noValidate: true, display: "contents" },
    h(
      Dialog.Body,
      null,
      h(
        Flex,
        { direction: "column", gap: "4" },
        values.topic &&
          !spec.fields.some((field) => field.id === "topic") &&
          h(Text, null, "Topic ", h(Code, null, values.topic)),
        values.group && h(Text, null, "Group ", h(Code, null, values.group)),
        spec.fields
          .filter((field) => !field.when || field.when(values))
          .map((field) =>
            h(Entry, {
              key: field.id,
              field,
              values,
              problem: tried ? problems[field.id] : "",
              set: (value) => {
                setRefused({}); // it was about other values
                setValues((old) => ({ ...old, [field.id]: value }));
              },
            }),
          ),
        tried && whole && h(Notice, { status: "warning" }, whole),
        refused[""] && h(Problem, { problem: refused[""] }),
      ),
    ),
    h(
      Dialog.Footer,
      null,
      h(Button, { type: "button", variant: "ghost", size: "sm", onClick: close }, "Cancel"),
      h(Button, { type: "submit", size: "sm", colorPalette: "brand", loading: busy }, "Review"),
    ),
  );
}

// What the brokers would refuse, by field ("": the whole); null where they would not, or cannot be asked now.
async function asked(spec, conn, values) {
  if (!spec.asks) return null;
  try {
    const { refused } = await get(pageApi(spec.route ?? "topic_check", { conn_id: conn, ...spec.asks(values) }));
    if (!refused) return null;
    const field = spec.parts?.[refused.part] ?? refused.part;
    return { [spec.fields.some((one) => one.id === field) ? field : ""]: refused.text };
  } catch {
    return null; // the run itself will say it
  }
}

function Entry({ field, values, problem, set }) {
  const value = values[field.id];
  if (field.kind === "flag") return h(CheckboxField, { label: field.label, on: Boolean(value), set });
  const common = { size: "sm", name: field.id, value: value ?? "", onChange: (event) => set(event.target.value) };
  return h(
    Field.Root,
    { required: field.required, invalid: Boolean(problem) },
    h(Field.Label, null, field.label, h(Field.RequiredIndicator)),
    typed(field, values, common),
    problem ? h(Field.ErrorText, null, problem) : field.help ? h(Field.HelperText, null, field.help) : null,
  );
}

function typed(field, values, common) {
  if (field.kind === "lines")
    return h(Textarea, { ...common, rows: field.rows ?? 3, fontFamily: "mono", spellCheck: false });
  if (field.kind === "choice")
    return h(
      NativeSelect.Root,
      { size: "sm" },
      h(
        NativeSelect.Field,
        common,
        optionsOf(field, values).map(([value, label]) => h("option", { key: value, value }, label)),
      ),
      h(NativeSelect.Indicator),
    );
  if (field.suggest)
    return h(SuggestingInput, { ...common, kind: field.suggest, several: field.several, of: field.of?.(values) });
  const inputMode = field.kind === "number" ? "numeric" : undefined;
  return h(Input, { ...common, inputMode, autoComplete: "off", spellCheck: false });
}

function Review({ spec, values, back, done }) {
  const { actions, conn } = useCluster();
  const dag = actions.get(spec.dag);
  const word = spec.type?.(values) ?? "";
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  const conf = confOn(conn, dag, spec.conf(values));
  const leave = spec.fields.length > 0 ? "Back" : "Cancel";
  const submit = async (event) => {
    event.preventDefault();
    if (busy || typed !== word) return;
    setBusy(true);
    setProblem(null);
    try {
      done(await start(dag.dag_id, conf, decided(spec.title, values)));
    } catch (found) {
      setProblem(found);
      setBusy(false);
    }
  };
  return h(
    Box,
    { as: "form", onSubmit: submit, display: "contents" },
    h(
      Dialog.Body,
      null,
      h(
        Flex,
        { direction: "column", gap: "3" },
        spec
          .say(values)
          .map((line, index) =>
            h(
              Text,
              { key: index, wordBreak: "break-word", ...(index > 0 && { fontSize: "sm", color: "fg.muted" }) },
              plainly(line),
            ),
          ),
        dag?.paused &&
          h(Notice, { status: "warning" }, `DAG ${dag.dag_id} is paused: the run waits until somebody unpauses it.`),
        h(Sent, { dag_id: dag?.dag_id, conf }),
        word &&
          h(
            Field.Root,
            { required: true },
            h(Field.Label, null, `Type ${word} to continue`),
            h(Input, {
              size: "sm",
              value: typed,
              autoComplete: "off",
              spellCheck: false,
              onChange: (event) => setTyped(event.target.value),
            }),
          ),
        h(Problem, { problem: problem && sentence(problem) }),
      ),
    ),
    h(
      Dialog.Footer,
      null,
      h(Button, { type: "button", variant: "ghost", size: "sm", onClick: back, disabled: busy }, leave),
      h(
        Button,
        {
          type: "submit",
          size: "sm",
          loading: busy,
          disabled: typed !== word,
          colorPalette: decided(spec.danger, values) ? "red" : "brand",
        },
        decided(spec.start, values),
      ),
    ),
  );
}

function decided(part, values) {
  return typeof part === "function" ? part(values) : part;
}

function Sent({ dag_id, conf }) {
  const text = plainly(JSON.stringify(conf, null, 1));
  return h(
    Box,
    { as: "details", fontSize: "sm", color: "fg.muted" },
    h("summary", { style: { cursor: "pointer" } }, `Starts DAG ${dag_id} as you`),
    h(
      Code,
      {
        as: "pre",
        display: "block",
        whiteSpace: "pre-wrap",
        wordBreak: "break-all",
        padding: "2",
        marginTop: "1",
        maxHeight: "12rem",
        overflow: "auto",
      },
      text.length > 4000 ? `${text.slice(0, 4000)} …` : text,
    ),
  );
}

function Run({ run, close }) {
  const { state } = useRun(run);
  return h(
    Fragment,
    null,
    h(Dialog.Body, null, h(RunProgress, { run })),
    h(
      Dialog.Footer,
      null,
      h(
        Text,
        { color: "fg.muted", fontSize: "xs", flex: "1" },
        ended(state) ? "" : "It continues when you close this.",
      ),
      h(Button, { size: "sm", onClick: close }, "Close"),
    ),
  );
}
