import type { Host } from "./host";

/** Counts the words, lines and characters of a text: one call, no steps, nothing asked of anybody. */
export async function execute(args: { text: string }, host: Host) {
  const words = args.text.split(/\s+/).filter((word) => word !== "").length;
  const lines = args.text === "" ? 0 : args.text.split("\n").length;

  host.log.info("counted", { words, lines });
  return { words, lines, characters: args.text.length };
}
