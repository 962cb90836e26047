// returned: "\u0000a\ud800"
export async function execute() { return "\0a" + "\ud800"; }
