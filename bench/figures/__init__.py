"""The paper's figures and tables, reproduced: one module each."""
