// timeout
// The engine looks at no clock within this.
export async function execute() { return Array.prototype.includes.call({ length: 2 ** 53 - 1 } as any, 1); }
