// threw: something that cannot be shown
export async function execute() { throw new Proxy(new Error("x"), { get() { throw 1; } }); }
