// timeout memory threw
export async function execute() { return "x".padEnd(2 ** 30 - 1, "y").length; }
