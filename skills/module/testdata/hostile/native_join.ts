// timeout memory threw
export async function execute() { return new Array(2 ** 32 - 1).join("x").length; }
