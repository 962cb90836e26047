// threw: TypeError: module.ts exports no function execute
export const other = 1;
