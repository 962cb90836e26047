import type { Host as Anything } from "./host";

interface State {
  questions: { question: string; answer?: string }[];
}

/** What its manifest declares. */
type Host = Anything & Required<Pick<Anything, "llm" | "run" | "workspace">>;

/**
 * Splits a topic into questions, answers one after the other, and writes a report of the answers.
 *
 * What is done stands in the workspace: a run that was paused, or that used its steps up, is continued by
 * the next one, which begins with what is missing.
 */
export async function execute(args: { topic: string }, host: Host) {
  const before = (await host.workspace.getState()) as Partial<State> | null;
  const state: State = { questions: before?.questions ?? [] };

  if (state.questions.length === 0) {
    await enter(host, "plan", "planner");
    const plan = await step(host, "plan", "planner", "Split this topic into at most five questions, one a line, nothing else.", args.topic);
    state.questions = plan.split("\n").map((line) => line.trim()).filter((line) => line !== "").slice(0, 5).map((question) => ({ question }));
    await host.workspace.setState(state);
    await host.run.checkpoint();
  }

  await enter(host, "research", "researcher");
  for (const [i, one] of state.questions.entries()) {
    if (one.answer !== undefined) {
      continue;
    }
    if (stepsLeft(host) < 2) { // this one, and the report
      break;
    }

    host.events.emitProgress(i / state.questions.length, one.question);
    one.answer = await step(host, `answer ${i + 1}`, "researcher", `Answer the question in a paragraph. It is about: ${args.topic}`, one.question);
    await host.workspace.setState(state);
    await host.run.checkpoint();
  }

  await enter(host, "report", "writer");
  const answered = state.questions.filter((one) => one.answer !== undefined);
  const report = await step(host, "report", "writer", "Write a report of one page from these questions and answers.", JSON.stringify(answered));
  const artifact = await host.workspace.createArtifact({ type: "report", title: args.topic, content: { report }, createdByRole: "writer" });

  return { artifactId: artifact.id, answered: answered.length, open: state.questions.length - answered.length };
}

async function enter(host: Host, phase: string, role: string): Promise<void> {
  await host.workspace.setPhase(phase);
  await host.workspace.setRole(role);
}

async function step(host: Host, label: string, role: string, systemPrompt: string, content: string): Promise<string> {
  host.run.reportStep(label, role);
  const answer = await host.llm.complete({
    purposeId: "research",
    systemPrompt,
    messages: [{ role: "user", content }],
    temperature: 0.3,
    maxTokens: 800,
  });
  return answer.text.trim();
}

function stepsLeft(host: Host): number {
  const budget = host.run.getStepBudget();
  return budget === null ? Infinity : budget - host.run.getStepCount();
}
