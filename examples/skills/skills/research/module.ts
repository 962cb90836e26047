import type { Host, State } from "./host";

/** Who does what; a role is seen in `rouse workspaces show`, and stands on what it made. */
const roles = { plan: "planner", answer: "researcher", report: "writer", review: "editor" } as const;
type Phase = keyof typeof roles;

const maxQuestions = 5;

/**
 * Researches a topic in phases, each of them in a role: questions, answers, a report, a review by its owner.
 *
 * What is done stands in the state of the workspace, and the first thing it does is to read that. So a run that used up its steps
 * (maxStepsPerRun) is continued by the next one, or by `rouse retry`, where it was.
 */
export async function execute(args: { topic: string }, host: Host) {
  const state: State = (await host.workspace.getState()) ?? { questions: [] };

  if (state.questions.length === 0) {
    await enter(host, "plan");
    const plan = await ask(host, "plan", "plan", `Split the topic into at most ${maxQuestions} questions, one a line, and nothing else.`, args.topic);
    state.questions = lines(plan).slice(0, maxQuestions).map((question) => ({ question }));
    if (state.questions.length === 0) throw new Error("the model found no question in the topic; say more of it");
    await host.workspace.setState(state);
    await host.workspace.createArtifact({ type: "list", title: `Questions: ${args.topic}`, content: plan, createdByRole: roles.plan });
  }

  await enter(host, "answer");
  for (const [i, one] of state.questions.entries()) {
    if (one.answer !== undefined) continue;

    host.events.emitProgress(i / state.questions.length, one.question);
    one.answer = await ask(host, `question ${i + 1}`, "answer", `Answer the question in a paragraph. It is about: ${args.topic}`, one.question);
    await host.workspace.setState(state);
    await host.run.checkpoint();
  }

  await enter(host, "report");
  const findings = state.questions.map((one) => `${one.question}\n${one.answer}`).join("\n\n");
  const text = await ask(host, "report", "report", "Write the report of a page from these questions and answers.", findings);
  const report = await host.workspace.createArtifact({ type: "report", title: args.topic, content: text, createdByRole: roles.report });

  return review(host, args.topic, state, report.id, text);
}

/** Asks the owner what they think of the report, and changes it once, if they want that. */
async function review(host: Host, topic: string, state: State, artifactId: string, text: string) {
  await enter(host, "review");
  const verdict = await host.run.requestInput<{ good: boolean; change?: string }>({
    title: `The report on ${topic.slice(0, 100)}`,
    message: text,
    inputSchema: {
      type: "object",
      properties: {
        good: { type: "boolean", description: "Is the report good as it is?" },
        change: { type: "string", description: "What is to change, if it is not" },
      },
      required: ["good"],
    },
  });

  if (!verdict.good) {
    const changed = await ask(host, "change", "report", "Write the report again, as its reader wants it.", `The report:\n${text}\n\nThe change: ${verdict.change ?? "another try"}`);
    await host.workspace.updateArtifact(artifactId, { content: changed });
  }
  await host.workspace.updateArtifact(artifactId, { status: verdict.good ? "approved" : "changed" });

  const steps = `${host.run.getStepCount()} steps of ${host.run.getStepBudget() ?? "any number"}`;
  return { message: `a report on ${topic}, from ${state.questions.length} questions (${steps})`, artifactId, answered: state.questions.length, approved: verdict.good };
}

async function enter(host: Host, phase: Phase): Promise<void> {
  await host.workspace.setPhase(phase);
  await host.workspace.setRole(roles[phase]);
}

/** Takes a step of the budget, and asks the model. */
async function ask(host: Host, step: string, purposeId: "plan" | "answer" | "report", systemPrompt: string, content: string): Promise<string> {
  host.run.reportStep(step, roles[purposeId]);
  const answer = await host.llm.complete({ purposeId, systemPrompt, messages: [{ role: "user", content }] });
  return answer.text.trim();
}

function lines(text: string): string[] {
  return text.split("\n").map((line) => line.trim()).filter((line) => line !== "");
}
