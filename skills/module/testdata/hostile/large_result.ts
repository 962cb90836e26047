// threw: RangeError: the result comes to
export async function execute() { return "x".repeat(100 << 20); }
