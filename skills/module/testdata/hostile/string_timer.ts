// threw: TypeError: a timer takes a function
export async function execute() { setTimeout("globalThis.x = 1" as any, 1); }
