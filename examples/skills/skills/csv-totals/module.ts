import { parse } from "./csv";
import { Decimal } from "./decimal";

interface Host {
  log: { info(message: string, data?: Record<string, unknown>): void };
  filesystem: {
    openFile(path?: string): Promise<{ handleId: string; name: string }>;
    readFile(handleId: string): Promise<string>;
  };
}

interface Totals {
  message: string;
  total: string;
  rows: number;
  by?: Record<string, string>;
}

/**
 * Sums up a column of the table that started the run.
 *
 * A declarative skill is one call: it has no steps, asks nobody, and keeps nothing. What it throws is how the run fails,
 * so each error says where in the table it is.
 */
export async function execute(args: { column: string; by?: string }, host: Host): Promise<Totals> {
  const file = await host.filesystem.openFile();
  const [head, ...rows] = parse(await host.filesystem.readFile(file.handleId));
  const column = columnOf(head, args.column);
  const by = args.by === undefined ? undefined : columnOf(head, args.by);
  host.log.info("read", { file: file.name, rows: rows.length });

  let total = Decimal.zero;
  const groups = new Map<string, Decimal>();
  for (const [i, row] of rows.entries()) {
    const value = Decimal.read(row[column] ?? "");
    if (!value) throw new Error(`row ${i + 1} of ${file.name} has no number in the column ${args.column}: ${JSON.stringify(row[column] ?? "")}`);

    total = total.plus(value);
    if (by !== undefined) {
      const group = row[by] || "(none)";
      groups.set(group, (groups.get(group) ?? Decimal.zero).plus(value));
    }
  }

  const parts = [...groups].map(([name, sum]) => `${name} ${sum}`);
  return {
    message: `${file.name}: ${args.column} ${total} in ${rows.length} rows` + (parts.length > 0 ? ` (${parts.join(", ")})` : ""),
    total: total.toString(),
    rows: rows.length,
    ...(by !== undefined && { by: Object.fromEntries([...groups].map(([name, sum]) => [name, sum.toString()])) }),
  };
}

function columnOf(head: string[] | undefined, name: string): number {
  const at = head?.indexOf(name) ?? -1;
  if (at < 0) throw new Error(`the table has no column ${name}; it has: ${head?.join(", ") ?? "nothing"}`);
  return at;
}
