interface Host {
  llm: {
    complete(request: {
      purposeId: string;
      systemPrompt: string;
      messages: { role: "user" | "assistant"; content: string }[];
      temperature?: number;
      maxTokens?: number;
    }): Promise<{ text: string; tokensUsed: { prompt: number; completion: number } }>;
  };
  events: { emitProgress(progress: number, message: string): void };
  run: {
    reportStep(label: string): void;
    checkpoint(): Promise<void>;
    requestInput(question: {
      title: string;
      message: string;
      inputSchema: Record<string, unknown>;
    }): Promise<{ change: string }>;
  };
}

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

  const answer = await host.run.requestInput({
    title: "Is this summary right?",
    message: draft,
    inputSchema: {
      type: "object",
      properties: { change: { type: "string", description: "What to change; empty if it is right" } },
      required: ["change"],
    },
  });
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
