import type { Host as Anything } from "./host";

/** What its manifest declares. */
type Host = Anything & Required<Pick<Anything, "llm" | "run">>;

/**
 * Sums a text up, asks a person what to change, and changes it.
 *
 * While nobody has answered the run waits and nothing of it is running. With the answer it begins once
 * more at its first line, and each call that it makes again gets the answer of the first time.
 */
export async function execute(args: { text: string }, host: Host) {
  host.run.reportStep("sum up");
  host.events.emitProgress(0.2, "Summing up");
  const draft = await ask(host, "Sum this text up in three sentences.", args.text);
  await host.run.checkpoint();

  const answer = (await host.run.requestInput({
    title: "Is this summary right?",
    message: draft,
    inputSchema: {
      type: "object",
      properties: { change: { type: "string", description: "What to change; empty if it is right" } },
      required: ["change"],
    },
  })) as { change: string };
  if (answer.change.trim() === "") {
    return { summary: draft, changed: false };
  }

  host.run.reportStep("change");
  host.events.emitProgress(0.8, "Changing");
  const summary = await ask(host, `Change this summary as its reader asks: ${answer.change}`, draft);
  return { summary, changed: true };
}

async function ask(host: Host, systemPrompt: string, content: string): Promise<string> {
  const answer = await host.llm.complete({
    purposeId: "summary",
    systemPrompt,
    messages: [{ role: "user", content }],
    temperature: 0.2,
    maxTokens: 500,
  });
  return answer.text.trim();
}
