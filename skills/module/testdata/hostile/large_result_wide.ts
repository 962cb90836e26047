// threw: RangeError: what the module sends
export async function execute() { return "€".repeat(12 << 20); }
