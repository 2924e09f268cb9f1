"""What conversations begin with: texts that operators publish to all tenants, and each tenant's assistant."""
